// What CuPy's own kernels need besides cuda_on_cpu.h: its headers, and the functions of CUDA that they call.

#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "cuda_on_cpu.h"

#undef __device__
#define __device__
#define __host__
#define __constant__
#define __noinline__

using std::isinf;
using std::signbit;

template <class To, class From> static To same_bits(From x) {
  To y;
  static_assert(sizeof x == sizeof y);
  memcpy(&y, &x, sizeof x);
  return y;
}
static float __int_as_float(int x) { return same_bits<float>(x); }
static int __float_as_int(float x) { return same_bits<int>(x); }
static double __longlong_as_double(long long x) { return same_bits<double>(x); }
static long long __double_as_longlong(double x) { return same_bits<long long>(x); }
static unsigned short __float2half_rn(float x) { return half_of_float(x); }
static float __half2float(unsigned short x) { return float_of_half(x); }
#define __half_as_ushort(number) (__half_raw(number).x)
#define __ushort_as_half(x) half(__half_raw{(unsigned short)(x)})

static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static float rsqrt(float x) { return 1 / std::sqrt(x); }
static double rsqrt(double x) { return 1 / std::sqrt(x); }
template <class A, class B> auto min(A a, B b) -> decltype(a + b) { return b < a ? b : a; }
template <class A, class B> auto max(A a, B b) -> decltype(a + b) { return a < b ? b : a; }

template <class T> T __ldg(const T* at) { return *at; }
static void __syncwarp(unsigned = ~0u) { on_cpu::wait_for_warp(); }
template <class T> T __shfl_up_sync(unsigned, T value, unsigned by, int = 32) {
  int lane = on_cpu::lane();
  return on_cpu::from_lane(value, lane >= int(by) ? lane - int(by) : lane);
}

// Threads run one after another, so nothing comes between reading and writing.
template <class T> T atomicCAS(T* at, T expected, T value) {
  T before = *at;
  if (before == expected) *at = value;
  return before;
}
template <class T> T added(T* at, T value) {
  T before = *at;
  *at += value;
  return before;
}
static int atomicAdd(int* at, int value) { return added(at, value); }
static unsigned atomicAdd(unsigned* at, unsigned value) { return added(at, value); }
static unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) { return added(at, value); }
static float atomicAdd(float* at, float value) { return added(at, value); }
static double atomicAdd(double* at, double value) { return added(at, value); }

#include <cupy/complex.cuh>
#include <cupy/carray.cuh>
#include <cupy/atomics.cuh>
#include <cupy/math_constants.h>
#include <cupy/float16.cuh>
#include <cupy/bfloat16.cuh>

// Run a kernel that loops over all elements in one thread.
#define RUN_BY_ONE_THREAD(name)                                                                                     \
  extern "C" int sizes_of_##name(int* sizes) { return on_cpu::sizes_of(name, sizes); }                              \
  extern "C" const char* launch_##name(const unsigned*, const unsigned*, size_t shared, void** arguments, bool r) { \
    const unsigned one[] = {1, 1, 1};                                                                               \
    return on_cpu::launch(name, one, one, shared, arguments, r);                                                    \
  }

// Run an instance of a template, under another name.
#define RUN_TEMPLATE(alias, ...)                                                                             \
  extern "C" int sizes_of_##alias(int* sizes) { return on_cpu::sizes_of(__VA_ARGS__, sizes); }               \
  extern "C" const char* launch_##alias(const unsigned* grid, const unsigned* block, size_t shared,          \
                                        void** arguments, bool r) {                                          \
    return on_cpu::launch(__VA_ARGS__, grid, block, shared, arguments, r);                                   \
  }
