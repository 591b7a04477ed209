// Operations of a warp on tensor cores (sm_80 and later): products of tiles of half precision, added up in float32.
//
// The instruction adds the product of a, 16 x 16, and b, 16 x 8, to c, 16 x 8. Each thread holds some numbers of each
// matrix in its registers; two neighbours of half precision share one register. With group = lane / 4 and
// pair = 2 (lane % 4) a thread holds
//
//   a[0], a[1]: row group and group + 8, columns pair and pair + 1;  a[2], a[3]: the same rows, 8 columns to the right
//   b[0], b[1]: rows pair and pair + 1, and 8 rows below, column group
//   c: row group, columns pair and pair + 1; row group + 8, the same columns
//
// So a result c can be the next left factor a: two matrices c side by side, rounded, are one matrix a, 16 x 16.

#pragma once
#include "common.cuh"

// The indices of this thread's warp in the block and lane in the warp, and the group and pair from above. Blocks have
// one axis of threads.
__device__ __forceinline__ int warp_index() { return threadIdx.x / 32; }
__device__ __forceinline__ int lane_index() { return threadIdx.x % 32; }
__device__ __forceinline__ int group_index() { return lane_index() / 4; }
__device__ __forceinline__ int pair_index() { return lane_index() % 4 * 2; }

#ifndef CUDA_ON_CPU
#if defined(BFLOAT16)
#define HALF "bf16"
#else
#define HALF "f16"
#endif

// Two numbers in one register, the first in the lower half.
__device__ __forceinline__ unsigned pack(float first, float second) {
  unsigned both;
  asm("cvt.rn." HALF "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
}

// c += a b, where upper and lower are this thread's two numbers of c in row group and in row group + 8.
__device__ __forceinline__ void multiply_add(float* upper, float* lower, const unsigned* a, unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32." HALF "." HALF ".f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(upper[0]), "+f"(upper[1]), "+f"(lower[0]), "+f"(lower[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads four matrices 8 x 8 from shared memory. Lanes 0 ... 7 pass the addresses of the rows of the first matrix, lanes
// 8 ... 15 those of the second, and so on. Each lane gets columns pair and pair + 1 of row group, or, if the matrices
// are transposed, rows pair and pair + 1 of column group.
__device__ __forceinline__ void load_matrices(unsigned* x, const STORED* row) {
  unsigned place = __cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(place) : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(unsigned* x, const STORED* row) {
  unsigned place = __cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(place) : "memory");
}

// Begins to copy 16 bytes to shared memory, or to set them to 0 if they are not inside the array.
__device__ __forceinline__ void begin_copy(STORED* to, const STORED* from, bool inside) {
  unsigned place = __cvta_generic_to_shared(to), bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(bytes) : "memory");
}

// Waits for all copies that this thread has begun. After a barrier the copies of all threads are done.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// 2 to the power of x.
__device__ __forceinline__ float power_of_two(float x) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
}

// The dynamic shared memory, the size of which is set at the launch.
__device__ __forceinline__ STORED* shared_memory() {
  extern __shared__ uint4 bytes[];
  return (STORED*)bytes;
}
#endif

// Load the factors of products from tiles, where step is the number of elements from one row to the next: load_left
// loads a, 16 x 16. The others load two matrices b side by side, 16 x 16 (b[0], b[1] are the first and b[2], b[3] the
// second), load_right_of_transpose from a tile that holds their transpose, load_right from a tile that holds them.
__device__ __forceinline__ void load_left(unsigned* a, const STORED* tile, int step) {
  load_matrices(a, tile + lane_index() % 16 * step + lane_index() / 16 * 8);
}

__device__ __forceinline__ void load_right_of_transpose(unsigned* b, const STORED* tile, int step) {
  load_matrices(b, tile + (lane_index() % 8 + lane_index() / 16 * 8) * step + lane_index() / 8 % 2 * 8);
}

__device__ __forceinline__ void load_right(unsigned* b, const STORED* tile, int step) {
  load_matrices_transposed(b, tile + lane_index() % 16 * step + lane_index() / 16 * 8);
}

// Stores two numbers at i and i + 1, where i is even.
__device__ __forceinline__ void store_pair(STORED* x, Index i, float first, float second) {
  *(unsigned*)(x + i) = pack(first, second);
}
