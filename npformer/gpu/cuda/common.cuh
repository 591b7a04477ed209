// What all kernels share: the types of numbers, random bits, and sums over a block of threads.
//
// STORED is the type of the arrays, REAL the type of the arithmetic, which is float if the arrays have half precision.
// Without any -D a kernel is compiled for float32.

#pragma once

typedef long long Index;

#if defined(FLOAT64)
typedef double STORED;
typedef double REAL;
#elif defined(FLOAT16) || defined(BFLOAT16)
typedef struct { unsigned short bits; } STORED;
typedef float REAL;
#else
typedef float STORED;
typedef float REAL;
#endif

#ifndef INFINITY
#define INFINITY (__int_as_float(0x7f800000))
#endif
#ifndef NAN
#define NAN (__int_as_float(0x7fffffff))
#endif

#ifndef CUDA_ON_CPU
__device__ __forceinline__ float float_of_half(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}

__device__ __forceinline__ unsigned short half_of_float(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
#endif

// A bfloat16 is the upper half of a float. Conversion rounds to nearest, ties to even.
__device__ __forceinline__ float float_of_bfloat(unsigned short bits) {
  union { unsigned bits; float x; } wide = {unsigned(bits) << 16};
  return wide.x;
}

__device__ __forceinline__ unsigned short bfloat_of_float(float x) {
  union { float x; unsigned bits; } wide = {x};
  if (isnan(x)) return 0x7fff;
  return (wide.bits + 0x7fff + (wide.bits >> 16 & 1)) >> 16;
}

__device__ __forceinline__ REAL load(const STORED* x, Index i) {
#if defined(FLOAT16)
  return float_of_half(x[i].bits);
#elif defined(BFLOAT16)
  return float_of_bfloat(x[i].bits);
#else
  return x[i];
#endif
}

__device__ __forceinline__ void store(STORED* x, Index i, REAL value) {
#if defined(FLOAT16)
  x[i].bits = half_of_float(value);
#elif defined(BFLOAT16)
  x[i].bits = bfloat_of_float(value);
#else
  x[i] = value;
#endif
}

// As in npformer.reference.math.random: 32 bits that depend only on the key (two words) and the index of the element.
__device__ __forceinline__ unsigned mix32(unsigned h) {
  h = (h ^ h >> 16) * 0x7feb352du;
  h = (h ^ h >> 15) * 0x846ca68bu;
  return h ^ h >> 16;
}

__device__ __forceinline__ bool is_kept(Index i, const unsigned* key, unsigned threshold) {
  if (threshold == 0) return true;
  unsigned first = mix32(unsigned(i) ^ key[0]);
  return mix32(first + (unsigned(i >> 32) ^ key[1])) >= threshold;
}

// Combine the numbers of n neighbouring threads of a warp, or of all threads of a block, to one that all of them get.
// The order is fixed, so the results are bitwise reproducible. The size of a block is a multiple of the size of a warp.
template <int n, class T, class F> __device__ __forceinline__ T over_warp(T x, F combine) {
  for (int distance = n / 2; distance > 0; distance /= 2) x = combine(x, __shfl_xor_sync(~0u, x, distance));
  return x;
}

template <class T, class F> __device__ __forceinline__ T over_block(T x, T nothing, F combine) {
  __shared__ T of_warp[32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
  x = over_warp<32>(x, combine);
  __syncthreads();  // threads may still be reading of_warp from the previous call
  if (lane == 0) of_warp[warp] = x;
  __syncthreads();
  return over_warp<32>(lane < n_warps ? of_warp[lane] : nothing, combine);
}

template <int n = 32> __device__ __forceinline__ REAL warp_sum(REAL x) {
  return over_warp<n>(x, [](REAL a, REAL b) { return a + b; });
}

template <int n> __device__ __forceinline__ REAL warp_max(REAL x) {
  return over_warp<n>(x, [](REAL a, REAL b) { return max(a, b); });
}

template <class T> __device__ __forceinline__ T block_sum(T x) {
  return over_block(x, T(0), [](T a, T b) { return a + b; });
}

template <class T> __device__ __forceinline__ T block_max(T x) {
  return over_block(x, T(-INFINITY), [](T a, T b) { return max(a, b); });
}

// The sum of term(i) for i from 0 to n - 1, and the largest of them, or 0 if all are -inf; by all threads of a block.
template <class F> __device__ __forceinline__ REAL sum_of(Index n, F term) {
  REAL sum = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) sum += term(i);
  return block_sum(sum);
}

template <class F> __device__ __forceinline__ REAL peak_of(Index n, F term) {
  REAL largest = -INFINITY;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) largest = max(largest, term(i));
  largest = block_max(largest);
  return largest == REAL(-INFINITY) ? REAL(0) : largest;
}

__device__ __forceinline__ REAL sigmoid(REAL x) {
  REAL e = exp(x > 0 ? -x : x);  // cannot overflow
  return (x > 0 ? REAL(1) : e) / (1 + e);
}

// The element of a flat array that this thread works on.
__device__ __forceinline__ Index this_element() { return Index(blockIdx.x) * blockDim.x + threadIdx.x; }
