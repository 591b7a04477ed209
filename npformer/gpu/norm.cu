// The sum of the squares of a flat array, in double precision: float32 squared fits, and nothing over- or underflows.

#include "common.cuh"

__device__ __forceinline__ double block_sum_of_doubles(double x) {
  __shared__ double of_thread[1024];
  of_thread[threadIdx.x] = x;
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) of_thread[threadIdx.x] += of_thread[threadIdx.x + half];
  }
  __syncthreads();
  return of_thread[0];
}

// A sum for each block, whose number of threads is a power of 2.
extern "C" __global__ void sums_of_squares(const STORED* x, double* sums, Index size) {
  double sum = 0;
  for (Index i = this_element(); i < size; i += Index(gridDim.x) * blockDim.x) sum += double(load(x, i)) * load(x, i);
  sum = block_sum_of_doubles(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// The sum of those, by one block.
extern "C" __global__ void add_sums(const double* sums, double* total, Index n) {
  double sum = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) sum += sums[i];
  sum = block_sum_of_doubles(sum);
  if (threadIdx.x == 0) *total = sum;
}
