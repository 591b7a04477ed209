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

// The sum of n numbers, by one block.
extern "C" __global__ void add_up(const REAL* x, REAL* sum, Index n) {
  REAL mine = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) mine += x[i];
  mine = block_sum(mine);
  if (threadIdx.x == 0) *sum = mine;
}
