// Layer normalisation, forward and backward: one block of threads for each row of n numbers. Without a mean (nullptr) it
// is root-mean-square normalisation, which takes the mean for 0 and has no bias.

#include "common.cuh"

const REAL PER_LARGE_UNIT = sizeof(REAL) == 8 ? 0x1p-640 : 0x1p-80;

struct Moments { REAL mean, rstd; };

// The mean (0 if rows are not centred) and rstd of a row, computed from its numbers times per_unit, a power of two.
__device__ __forceinline__ Moments moments_of(const STORED* x, Index n, bool centred, REAL eps, REAL per_unit) {
  REAL m = centred ? sum_of(n, [&](Index i) { return load(x, i) * per_unit; }) / n : REAL(0);
  REAL deviations = 0, squares = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    REAL deviation = load(x, i) * per_unit - m;
    deviations += deviation;
    squares += deviation * deviation;
  }
  REAL error = centred ? block_sum(deviations) / n : REAL(0);  // the rounding error of the mean
  REAL variance = fabs(block_sum(squares) / n - error * error) + eps * per_unit * per_unit;
  // It is 0 if all numbers are the same, and so huge that eps vanishes beside them.
  return {(m + error) / per_unit, variance == 0 ? 1 / sqrt(eps) : per_unit / sqrt(variance)};
}

// y = (x - mean) rstd gain + bias, with rstd = 1 / √(variance + eps).
extern "C" __global__ void layer_norm(
    const STORED* x, const STORED* gain, const STORED* bias, STORED* y, REAL* mean, REAL* rstd, Index n, REAL eps) {
  x += blockIdx.x * n;
  y += blockIdx.x * n;
  Moments of_row = moments_of(x, n, mean, eps, 1);
  if (!(of_row.rstd > 0)) of_row = moments_of(x, n, mean, eps, PER_LARGE_UNIT);  // the sum or the squares overflow
  REAL m = of_row.mean, r = of_row.rstd;
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
    product += dx_hat * ((load(x, i) - m) * r);
  }
  sum = mean ? block_sum(sum) / n : REAL(0);
  product = block_sum(product) / n;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    REAL dx_hat = load(dy, i) * load(gain, i), x_hat = (load(x, i) - m) * r;
    store(dx, i, r * (dx_hat - sum - x_hat * product));
  }
}
