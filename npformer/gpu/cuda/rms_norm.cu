// Root-mean-square normalisation, forward and backward: one block of threads for each row of n numbers.

#include "common.cuh"

extern "C" __global__ void rms_norm(const STORED* x, const STORED* gain, STORED* y, REAL* rstd, Index n, REAL eps) {
  x += blockIdx.x * n;
  y += blockIdx.x * n;
  REAL squares = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) squares += load(x, i) * load(x, i);
  REAL r = 1 / sqrt(block_sum(squares) / n + eps);
  for (Index i = threadIdx.x; i < n; i += blockDim.x) store(y, i, load(x, i) * r * load(gain, i));
  if (threadIdx.x == 0) rstd[blockIdx.x] = r;
}

// With x̂ = x rstd and dx̂ = dy gain: dx = rstd (dx̂ - x̂ mean(dx̂ x̂)). The sum of products = dy x̂ over all rows is
// the gradient of gain.
extern "C" __global__ void rms_norm_backward(
    const STORED* dy, const STORED* x, const STORED* gain, const REAL* rstd, STORED* dx, REAL* products, Index n) {
  dy += blockIdx.x * n;
  x += blockIdx.x * n;
  dx += blockIdx.x * n;
  products += blockIdx.x * n;
  REAL r = rstd[blockIdx.x], product = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) product += load(dy, i) * load(gain, i) * load(x, i) * r;
  product = block_sum(product) / n;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    REAL x_hat = load(x, i) * r;
    store(dx, i, r * (load(dy, i) * load(gain, i) - x_hat * product));
    products[i] = load(dy, i) * x_hat;
  }
}
