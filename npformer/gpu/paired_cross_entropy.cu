// The loss of two predictions that shall agree, and its gradient: a block of threads for each token.

#include "cross_entropy.cuh"

// As cross_entropy.cu, for two predictions of each token that shall agree, p and p', the second gridDim.x rows behind
// the first. To both losses comes consistency / 2 (KL(p‖p') + KL(p'‖p)), with the gradient
// p (log p - log p' - KL(p‖p')) + p - p' in the first. Each counts by half a share.
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
