// Softmax and its logarithm, forward and backward: a block of threads for each row of n numbers.

#include "common.cuh"

// The largest entry, or 0 in a row of -inf, and the sum of exp(x - peak), or 1 if it is 0: such a row gives zeros.
__device__ __forceinline__ void peak_and_total(const STORED* x, Index n, REAL* peak, REAL* total) {
  REAL largest = -INFINITY, sum = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) largest = max(largest, load(x, i));
  largest = block_max(largest);
  *peak = largest == REAL(-INFINITY) ? REAL(0) : largest;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) sum += exp(load(x, i) - *peak);
  sum = block_sum(sum);
  *total = sum == 0 ? REAL(1) : sum;
}

extern "C" __global__ void softmax(const STORED* x, STORED* y, Index n) {
  x += blockIdx.x * n;
  y += blockIdx.x * n;
  REAL peak, total;
  peak_and_total(x, n, &peak, &total);
  for (Index i = threadIdx.x; i < n; i += blockDim.x) store(y, i, exp(load(x, i) - peak) / total);
}

// dx = y (dy - Σ dy y)
extern "C" __global__ void softmax_backward(const STORED* dy, const STORED* y, STORED* dx, Index n) {
  dy += blockIdx.x * n;
  y += blockIdx.x * n;
  dx += blockIdx.x * n;
  REAL sum = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) sum += load(dy, i) * load(y, i);
  sum = block_sum(sum);
  for (Index i = threadIdx.x; i < n; i += blockDim.x) store(dx, i, load(y, i) * (load(dy, i) - sum));
}

extern "C" __global__ void log_softmax(const STORED* x, STORED* y, Index n) {
  x += blockIdx.x * n;
  y += blockIdx.x * n;
  REAL peak, total;
  peak_and_total(x, n, &peak, &total);
  REAL log_total = log(total);
  for (Index i = threadIdx.x; i < n; i += blockDim.x) store(y, i, load(x, i) - peak - log_total);
}

// dx = dy - softmax(x) Σ dy
extern "C" __global__ void log_softmax_backward(const STORED* dy, const STORED* y, STORED* dx, Index n) {
  dy += blockIdx.x * n;
  y += blockIdx.x * n;
  dx += blockIdx.x * n;
  REAL sum = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) sum += load(dy, i);
  sum = block_sum(sum);
  for (Index i = threadIdx.x; i < n; i += blockDim.x) store(dx, i, load(dy, i) - exp(load(y, i)) * sum);
}
