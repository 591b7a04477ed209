// The loss and its gradient: a block of threads for each token, whose logits are a row of n numbers.

#include "common.cuh"

// dlogits = (softmax(logits) - q) share, where q is 1 - smoothing at the target, plus smoothing / n everywhere; the
// gradient may be written over the logits. A token that is not counted has loss 0 and gradient 0.
extern "C" __global__ void cross_entropy(
    const STORED* logits, const Index* targets, STORED* dlogits, REAL* losses, Index n, Index ignore_id,
    REAL smoothing, const REAL* share) {
  logits += blockIdx.x * n;
  dlogits += blockIdx.x * n;
  Index target = targets[blockIdx.x];
  if (target == ignore_id) {
    for (Index i = threadIdx.x; i < n; i += blockDim.x) store(dlogits, i, 0);
    if (threadIdx.x == 0) losses[blockIdx.x] = 0;
    return;
  }

  REAL largest = -INFINITY, total = 0, sum = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) largest = max(largest, load(logits, i));
  largest = block_max(largest);
  REAL peak = largest == REAL(-INFINITY) ? REAL(0) : largest;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    total += exp(load(logits, i) - peak);
    sum += load(logits, i) - peak;
  }
  total = block_sum(total);
  sum = block_sum(sum);
  REAL log_total = log(total == 0 ? REAL(1) : total);

  if (threadIdx.x == 0) {
    REAL surprise = -(1 - smoothing) * (load(logits, target) - peak - log_total);
    if (smoothing != 0) surprise -= smoothing * (sum / n - log_total);
    losses[blockIdx.x] = surprise * *share;
  }
  __syncthreads();  // the target's logit has been read
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    REAL p = exp(load(logits, i) - peak - log_total);
    store(dlogits, i, ((i == target ? p - (1 - smoothing) : p) - smoothing / n) * *share);
  }
}

// A row of logits as what its softmax needs.
struct Row {
  REAL peak, log_total, sum;  // sum: of all logits - peak
};

__device__ __forceinline__ Row look_at(const STORED* logits, Index n) {
  REAL peak = -INFINITY, total = 0, sum = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) peak = max(peak, load(logits, i));
  peak = block_max(peak);
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    total += exp(load(logits, i) - peak);
    sum += load(logits, i) - peak;
  }
  return {peak, log(block_sum(total)), block_sum(sum)};
}

// The same for two predictions of each token, p and p', the second gridDim.x rows behind the first, that shall agree:
// besides, consistency (KL(p‖p') + KL(p'‖p)), whose gradient is p (log p - log p' - KL(p‖p')) + p - p'.
extern "C" __global__ void paired_cross_entropy(
    const STORED* logits, const Index* targets, STORED* dlogits, REAL* losses, Index n, Index ignore_id,
    REAL smoothing, REAL consistency, const REAL* share) {
  Index first = blockIdx.x * n, second = (Index(gridDim.x) + blockIdx.x) * n, target = targets[blockIdx.x];
  if (target == ignore_id) {
    for (Index i = threadIdx.x; i < n; i += blockDim.x) store(dlogits, first + i, 0), store(dlogits, second + i, 0);
    if (threadIdx.x == 0) losses[blockIdx.x] = 0;
    return;
  }
  Row x = look_at(logits + first, n), y = look_at(logits + second, n);
  auto log_x = [&](Index i) { return load(logits, first + i) - x.peak - x.log_total; };
  auto log_y = [&](Index i) { return load(logits, second + i) - y.peak - y.log_total; };

  REAL x_from_y = 0, y_from_x = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    REAL apart = log_x(i) - log_y(i);
    x_from_y += exp(log_x(i)) * apart;
    y_from_x -= exp(log_y(i)) * apart;
  }
  x_from_y = block_sum(x_from_y);
  y_from_x = block_sum(y_from_x);

  if (threadIdx.x == 0) {
    REAL surprise = -(1 - smoothing) * (log_x(target) + log_y(target));
    surprise -= smoothing * (x.sum / n - x.log_total + y.sum / n - y.log_total);
    losses[blockIdx.x] = (surprise + consistency * (x_from_y + y_from_x)) * *share;
  }
  __syncthreads();  // the target's logits have been read
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    REAL apart = log_x(i) - log_y(i), p = exp(log_x(i)), other = exp(log_y(i));
    REAL wanted = smoothing / n + (i == target ? 1 - smoothing : REAL(0)), between = consistency * (p - other);
    store(dlogits, first + i, (p + consistency * p * (apart - x_from_y) + between - wanted) * *share);
    store(dlogits, second + i, (other - consistency * other * (apart + y_from_x) - between - wanted) * *share);
  }
}

// The sum of n numbers, by one block.
extern "C" __global__ void add_up(const REAL* x, REAL* sum, Index n) {
  REAL mine = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) mine += x[i];
  mine = block_sum(mine);
  if (threadIdx.x == 0) *sum = mine;
}
