// The loss and its gradient: one block of threads for each token, with a row of n logits.

#include "cross_entropy.cuh"

// dlogits = (softmax(logits) - q) share, which may be written over the logits. Ignored tokens have loss 0 and
// gradient 0.
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
  __syncthreads();  // wait until the target's logit has been read
  for (Index i = threadIdx.x; i < n; i += blockDim.x)
    store(dlogits, i, (exp(log_softmax(row, i)) - wanted(i, target, n, smoothing)) * *share);
}
