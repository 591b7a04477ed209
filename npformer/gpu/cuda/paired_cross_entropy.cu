// The loss of two predictions that should agree, and its gradient: one block of threads for each token.

#include "cross_entropy.cuh"

// Like cross_entropy.cu, for two predictions p and p' of each token. The row of p' is gridDim.x rows after that of p.
// The term consistency / 2 (KL(p‖p') + KL(p'‖p)) is added to the sum of both losses. The gradient of the two
// divergences by the first logits is p (log p - log p' - KL(p‖p')) + p - p'. Each prediction has half the share of its
// token.
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
  __syncthreads();  // wait until the target's logits have been read
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    REAL log_p = log_softmax(row, i), log_q = log_softmax(other, i), apart = log_p - log_q;
    REAL p = exp(log_p), q = exp(log_q), asked = wanted(i, target, n, smoothing);
    store(dlogits, first + i, (p - asked + weight * (p * (apart - divergence) + p - q)) * half);
    store(dlogits, second + i, (q - asked - weight * (q * (apart + back) + p - q)) * half);
  }
}
