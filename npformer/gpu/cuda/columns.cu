// Sums over the rows of a matrix: the gradients of biases and gains.
//
// A block of 32 x 8 threads adds up 32 columns, in every gridDim.y-th group of eight rows. This gives gridDim.y partial
// sums of each column, which add_parts adds. The order is fixed, so the results are bitwise reproducible.

#include "common.cuh"

__device__ __forceinline__ void add_rows_of_block(REAL sum, REAL* sums, Index column, Index n_columns) {
  __shared__ REAL of_row[8][32];
  of_row[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < n_columns) {
    for (int i = 1; i < 8; i++) sum += of_row[i][threadIdx.x];
    sums[blockIdx.y * n_columns + column] = sum;
  }
  __syncthreads();
}

// Parts of Σ dy.
extern "C" __global__ void sum_columns(const STORED* dy, REAL* sums, Index n_rows, Index n_columns) {
  Index column = blockIdx.x * 32 + threadIdx.x;
  REAL sum = 0;
  if (column < n_columns)
    for (Index row = blockIdx.y * 8 + threadIdx.y; row < n_rows; row += gridDim.y * 8)
      sum += load(dy, row * n_columns + column);
  add_rows_of_block(sum, sums, column, n_columns);
}

// Parts of Σ dy x̂, with x̂ = (x - mean) rstd, or x rstd without a mean, and of Σ dy.
extern "C" __global__ void sum_gain_and_bias(
    const STORED* dy, const STORED* x, const REAL* mean, const REAL* rstd, REAL* gains, REAL* biases, Index n_rows,
    Index n_columns) {
  Index column = blockIdx.x * 32 + threadIdx.x;
  REAL gain = 0, bias = 0;
  if (column < n_columns)
    for (Index row = blockIdx.y * 8 + threadIdx.y; row < n_rows; row += gridDim.y * 8) {
      REAL d = load(dy, row * n_columns + column);
      gain += d * ((load(x, row * n_columns + column) - (mean ? mean[row] : REAL(0))) * rstd[row]);
      bias += d;
    }
  add_rows_of_block(gain, gains, column, n_columns);
  add_rows_of_block(bias, biases, column, n_columns);
}

// The sum of the parts of each column.
extern "C" __global__ void add_parts(const REAL* sums, STORED* total, Index n_parts, Index n_columns) {
  Index column = this_element();
  if (column >= n_columns) return;
  REAL sum = 0;
  for (Index part = 0; part < n_parts; part++) sum += sums[part * n_columns + column];
  store(total, column, sum);
}
