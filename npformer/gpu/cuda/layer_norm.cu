// Layer normalisation, forward and backward: one block of threads for each row of n numbers. Without a mean (nullptr) it
// is root-mean-square normalisation, which takes the mean for 0 and has no bias.

#include "common.cuh"

extern "C" __global__ void layer_norm(
    const STORED* x, const STORED* gain, const STORED* bias, STORED* y, REAL* mean, REAL* rstd, Index n, REAL eps) {
  x += blockIdx.x * n;
  y += blockIdx.x * n;
  REAL m = mean ? sum_of(n, [&](Index i) { return load(x, i); }) / n : REAL(0), deviations = 0, squares = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    deviations += load(x, i) - m;
    squares += (load(x, i) - m) * (load(x, i) - m);
  }
  REAL error = mean ? block_sum(deviations) / n : REAL(0);  // the rounding error of the mean
  m += error;
  REAL r = 1 / sqrt(fabs(block_sum(squares) / n - error * error) + eps);
  for (Index i = threadIdx.x; i < n; i += blockDim.x)
    store(y, i, (load(x, i) - m) * r * load(gain, i) + (bias ? load(bias, i) : REAL(0)));
  if (threadIdx.x == 0) {
    if (mean) mean[blockIdx.x] = m;
    rstd[blockIdx.x] = r;
  }
}

// With x̂ = (x - mean) rstd and dx̂ = dy gain: dx = rstd (dx̂ - mean(dx̂) - x̂ mean(dx̂ x̂)), without mean(dx̂) if there
// is no mean.
extern "C" __global__ void layer_norm_backward(
    const STORED* dy, const STORED* x, const STORED* gain, const REAL* mean, const REAL* rstd, STORED* dx, Index n) {
  dy += blockIdx.x * n;
  x += blockIdx.x * n;
  dx += blockIdx.x * n;
  REAL m = mean ? mean[blockIdx.x] : REAL(0), r = rstd[blockIdx.x], sum = 0, product = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    REAL dx_hat = load(dy, i) * load(gain, i);
    sum += dx_hat;
    product += dx_hat * (load(x, i) - m) * r;
  }
  sum = mean ? block_sum(sum) / n : REAL(0);
  product = block_sum(product) / n;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    REAL dx_hat = load(dy, i) * load(gain, i), x_hat = (load(x, i) - m) * r;
    store(dx, i, r * (dx_hat - sum - x_hat * product));
  }
}
