// Softmax and its logarithm, forward and backward: one block of threads for each row of n numbers. step is the distance
// in memory from one number of a row to the next.

#include "common.cuh"

__device__ __forceinline__ Index first_of_row(Index n, Index step) {
  return blockIdx.x / step * n * step + blockIdx.x % step;
}

// The sum of exp(x - peak), or 1 if it is 0, so that the softmax of a row of -inf is 0.
__device__ __forceinline__ REAL total_of(const STORED* x, Index n, Index step, REAL* peak) {
  REAL shift = *peak = peak_of(n, [&](Index i) { return load(x, i * step); });
  REAL total = sum_of(n, [&](Index i) { return exp(load(x, i * step) - shift); });
  return total == 0 ? REAL(1) : total;
}

// y = exp(x - peak) / Σ exp(x - peak), and zeros for a row of -inf.
extern "C" __global__ void softmax(const STORED* x, STORED* y, Index n, Index step) {
  x += first_of_row(n, step);
  y += first_of_row(n, step);
  REAL peak, total = total_of(x, n, step, &peak);
  for (Index i = threadIdx.x; i < n; i += blockDim.x) store(y, i * step, exp(load(x, i * step) - peak) / total);
}

// dx = y (dy - Σ dy y).
extern "C" __global__ void softmax_backward(const STORED* dy, const STORED* y, STORED* dx, Index n, Index step) {
  dy += first_of_row(n, step);
  y += first_of_row(n, step);
  dx += first_of_row(n, step);
  REAL sum = sum_of(n, [&](Index i) { return load(dy, i * step) * load(y, i * step); });
  for (Index i = threadIdx.x; i < n; i += blockDim.x)
    store(dx, i * step, load(y, i * step) * (load(dy, i * step) - sum));
}

// y = x - peak - log Σ exp(x - peak). The peak is subtracted first: the logarithm would lose its digits if it were
// added to a large peak.
extern "C" __global__ void log_softmax(const STORED* x, STORED* y, Index n, Index step) {
  x += first_of_row(n, step);
  y += first_of_row(n, step);
  REAL peak, log_total = log(total_of(x, n, step, &peak));
  for (Index i = threadIdx.x; i < n; i += blockDim.x) store(y, i * step, load(x, i * step) - peak - log_total);
}

// dx = dy - exp(y) Σ dy.
extern "C" __global__ void log_softmax_backward(const STORED* dy, const STORED* y, STORED* dx, Index n, Index step) {
  dy += first_of_row(n, step);
  y += first_of_row(n, step);
  dx += first_of_row(n, step);
  REAL sum = sum_of(n, [&](Index i) { return load(dy, i * step); });
  for (Index i = threadIdx.x; i < n; i += blockDim.x)
    store(dx, i * step, load(dy, i * step) - exp(load(y, i * step)) * sum);
}
