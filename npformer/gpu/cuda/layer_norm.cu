// Layer normalisation, forward and backward: one block of threads for each row of n numbers.

#include "common.cuh"

extern "C" __global__ void layer_norm(
    const STORED* x, const STORED* gain, const STORED* bias, STORED* y, REAL* mean, REAL* rstd, Index n, REAL eps) {
  x += blockIdx.x * n;
  y += blockIdx.x * n;
  REAL sum = 0, deviations = 0, squares = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) sum += load(x, i);
  REAL m = block_sum(sum) / n;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    deviations += load(x, i) - m;
    squares += (load(x, i) - m) * (load(x, i) - m);
  }
  REAL error = block_sum(deviations) / n;  // the rounding error of the mean
  m += error;
  REAL r = 1 / sqrt(fabs(block_sum(squares) / n - error * error) + eps);
  for (Index i = threadIdx.x; i < n; i += blockDim.x)
    store(y, i, (load(x, i) - m) * r * load(gain, i) + load(bias, i));
  if (threadIdx.x == 0) {
    mean[blockIdx.x] = m;
    rstd[blockIdx.x] = r;
  }
}

// With x̂ = (x - mean) rstd and dx̂ = dy gain: dx = rstd (dx̂ - mean(dx̂) - x̂ mean(dx̂ x̂)).
extern "C" __global__ void layer_norm_backward(
    const STORED* dy, const STORED* x, const STORED* gain, const REAL* mean, const REAL* rstd, STORED* dx, Index n) {
  dy += blockIdx.x * n;
  x += blockIdx.x * n;
  dx += blockIdx.x * n;
  REAL m = mean[blockIdx.x], r = rstd[blockIdx.x], sum = 0, product = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    REAL dx_hat = load(dy, i) * load(gain, i);
    sum += dx_hat;
    product += dx_hat * (load(x, i) - m) * r;
  }
  sum = block_sum(sum) / n;
  product = block_sum(product) / n;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    REAL dx_hat = load(dy, i) * load(gain, i), x_hat = (load(x, i) - m) * r;
    store(dx, i, r * (dx_hat - sum - x_hat * product));
  }
}
