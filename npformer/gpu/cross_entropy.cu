// The loss and its gradient: a block of threads for each token, whose logits are a row of n numbers.

#include "common.cuh"

// What the softmax of a row needs: its largest logit (0 in a row of -inf), log Σ exp(logit - peak), Σ (logit - peak).
struct Row {
  const STORED* logits;
  REAL peak, log_total, sum;
};

__device__ __forceinline__ Row look_at(const STORED* logits, Index n) {
  REAL largest = -INFINITY, total = 0, sum = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) largest = max(largest, load(logits, i));
  largest = block_max(largest);
  REAL peak = largest == REAL(-INFINITY) ? REAL(0) : largest;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    total += exp(load(logits, i) - peak);
    sum += load(logits, i) - peak;
  }
  total = block_sum(total);
  return {logits, peak, log(total == 0 ? REAL(1) : total), block_sum(sum)};
}

__device__ __forceinline__ REAL log_softmax(const Row& row, Index i) {
  return load(row.logits, i) - row.peak - row.log_total;
}

// -Σ q log p, where q is 1 - smoothing at the target, plus smoothing / n everywhere.
__device__ __forceinline__ REAL surprise(const Row& row, Index target, Index n, REAL smoothing) {
  REAL at_target = -(1 - smoothing) * log_softmax(row, target);
  return smoothing == 0 ? at_target : at_target - smoothing * (row.sum / n - row.log_total);
}

__device__ __forceinline__ REAL wanted(Index i, Index target, Index n, REAL smoothing) {
  return smoothing / n + (i == target ? 1 - smoothing : REAL(0));
}

__device__ __forceinline__ void clear(STORED* row, Index n) {
  for (Index i = threadIdx.x; i < n; i += blockDim.x) store(row, i, 0);
}

// dlogits = (softmax(logits) - q) share; the gradient may be written over the logits. A token that is not counted has
// loss 0 and gradient 0.
extern "C" __global__ void cross_entropy(
    const STORED* logits, const Index* targets, STORED* dlogits, REAL* losses, Index n, Index ignore_id,
    REAL smoothing, const REAL* share) {
  Index target = targets[blockIdx.x];
  dlogits += blockIdx.x * n;
  if (target == ignore_id) {
    clear(dlogits, n);
    if (threadIdx.x == 0) losses[blockIdx.x] = 0;
    return;
  }
  Row row = look_at(logits + blockIdx.x * n, n);
  if (threadIdx.x == 0) losses[blockIdx.x] = surprise(row, target, n, smoothing) * *share;
  __syncthreads();  // the target's logit has been read
  for (Index i = threadIdx.x; i < n; i += blockDim.x)
    store(dlogits, i, (exp(log_softmax(row, i)) - wanted(i, target, n, smoothing)) * *share);
}

// The same for two predictions of each token that shall agree, p and p', the second gridDim.x rows behind the first. To
// both losses comes consistency / 2 (KL(p‖p') + KL(p'‖p)), with the gradient p (log p - log p' - KL(p‖p')) + p - p' in
// the first. Each counts by half a share.
extern "C" __global__ void paired_cross_entropy(
    const STORED* logits, const Index* targets, STORED* dlogits, REAL* losses, Index n, Index ignore_id,
    REAL smoothing, REAL consistency, const REAL* share) {
  Index first = blockIdx.x * n, second = (Index(gridDim.x) + blockIdx.x) * n, target = targets[blockIdx.x];
  if (target == ignore_id) {
    clear(dlogits + first, n);
    clear(dlogits + second, n);
    if (threadIdx.x == 0) losses[blockIdx.x] = 0;
    return;
  }
  Row row = look_at(logits + first, n), other = look_at(logits + second, n);
  REAL divergence = 0, back = 0, weight = consistency / 2, half = *share / 2;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    REAL apart = log_softmax(row, i) - log_softmax(other, i);
    divergence += exp(log_softmax(row, i)) * apart;
    back -= exp(log_softmax(other, i)) * apart;
  }
  divergence = block_sum(divergence);
  back = block_sum(back);

  if (threadIdx.x == 0) {
    REAL both = surprise(row, target, n, smoothing) + surprise(other, target, n, smoothing);
    losses[blockIdx.x] = (both + weight * (divergence + back)) * half;
  }
  __syncthreads();  // the target's logits have been read
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    REAL log_p = log_softmax(row, i), log_q = log_softmax(other, i), apart = log_p - log_q;
    REAL p = exp(log_p), q = exp(log_q), asked = wanted(i, target, n, smoothing);
    store(dlogits, first + i, (p - asked + weight * (p * (apart - divergence) + p - q)) * half);
    store(dlogits, second + i, (q - asked - weight * (q * (apart + back) + p - q)) * half);
  }
}

// The sum of n numbers, by one block.
extern "C" __global__ void add_up(const REAL* x, REAL* sum, Index n) {
  REAL mine = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) mine += x[i];
  mine = block_sum(mine);
  if (threadIdx.x == 0) *sum = mine;
}
