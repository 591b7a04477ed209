// Runs CUDA kernels on a processor: block after block, each thread of a block a fiber that gives way at barriers.
//
// Slow and exact: what a kernel computes, where it reads and writes, and whether its barriers suffice can be tested
// without a GPU. Shared memory is filled with NaN before each block. A warp runs as far as it can before the next, from
// the first to the last or in reverse order: a kernel whose result depends on it lacks a barrier. Copies that go on
// beside the computing are made when they are waited for, or in reverse order at once.

#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#include <utility>
#include <vector>

// Of <cmath>, which takes longer to read than most kernels.
#define FUNCTION(name)            \
  extern "C" double name(double); \
  extern "C" float name##f(float); \
  static inline float name(float x) { return name##f(x); }
FUNCTION(cos)
FUNCTION(erfc)
FUNCTION(exp)
FUNCTION(exp2)
FUNCTION(fabs)
FUNCTION(log)
FUNCTION(sin)
FUNCTION(sqrt)
FUNCTION(tanh)
#undef FUNCTION
template <class T> bool isfinite(T x) { return __builtin_isfinite(x); }
template <class T> bool isnan(T x) { return __builtin_isnan(x); }
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

#define CUDA_ON_CPU
#define __global__
#define __device__ static inline
#define __forceinline__
#define __launch_bounds__(n)
#define __shared__ static __attribute__((section("shared_memory")))
extern char __start_shared_memory[] __attribute__((weak, visibility("hidden")));
extern char __stop_shared_memory[] __attribute__((weak, visibility("hidden")));

struct uint3 { unsigned x, y, z; };
static uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace on_cpu {

const int STACK = 1 << 16, WARP = 32;

typedef void* Place[5];  // where to go on, as GCC's jumps keep it
struct Barrier { int arrived = 0; unsigned generation = 0; };
struct Copy { void* to; const void* from; bool inside; };
struct Warp { Barrier barrier; int alive = 0; alignas(16) char slots[2][WARP][64]; };
struct Fiber {
  Place at;
  ucontext_t start;
  uint3 index;
  bool done;
  char* stack = nullptr;
  std::vector<Copy> copies;
};

static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static Barrier block_barrier;
static Place scheduler;
static int now, alive;
static int place, end_of_warp, size_of_block;  // place: of the thread that runs, in the order in which they do
static bool progress, in_reverse;
static const char* mistake;  // of the kernel, the first that was seen
static size_t dynamic_size;  // bytes of shared memory that the launch has asked for
static void run_fiber();
static void (*body)(const void*);  // what each thread does, and what it is given
static const void* arguments_of_body;

// The turn is that of the next thread of the warp which has not returned, if there is one.
static bool next_thread() {
  while (++place < end_of_warp) {
    now = in_reverse ? size_of_block - 1 - place : place;
    if (fibers[now].done) continue;
    threadIdx = fibers[now].index;
    return true;
  }
  return false;
}

// From a fiber to the next, or to the scheduler if that has to begin or the warp is through. A context would ask the
// system at each switch; a jump does not. Those of GCC take fewer instructions than those of the library, and may not be
// where the place is noted to which they go.
__attribute__((noipa)) static void jump(Place& to) { __builtin_longjmp(to, 1); }

__attribute__((noipa)) static void give_way() {
  if (__builtin_setjmp(fibers[now].at)) return;
  bool found = next_thread();
  if (found && fibers[now].stack) jump(fibers[now].at);
  if (found) place--;
  jump(scheduler);
}

__attribute__((noipa)) static void go_on() {
  if (__builtin_setjmp(scheduler)) return;
  if (fibers[now].stack) jump(fibers[now].at);
  Fiber& fiber = fibers[now];
  fiber.stack = new char[STACK];
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = fiber.stack;
  fiber.start.uc_stack.ss_size = STACK;
  makecontext(&fiber.start, run_fiber, 0);
  setcontext(&fiber.start);
}

// Waits until every thread that has not returned is here.
static void wait(Barrier& barrier, const int& expected) {
  unsigned generation = barrier.generation;
  barrier.arrived++;
  while (barrier.generation == generation) {
    if (barrier.arrived >= expected) {
      barrier.arrived = 0;
      barrier.generation++;
      progress = true;
    } else {
      give_way();
    }
  }
}

static int lane() { return now % WARP; }
static Warp& warp() { return warps[now / WARP]; }
static void wait_for_warp() { wait(warp().barrier, warp().alive); }

// What each lane of the warp holds. There are two places, used in turn: one may still be read while the other is
// written.
template <class T> char (*from_lanes(T value))[64] {
  static_assert(sizeof(T) <= 64);
  char(*slots)[64] = warp().slots[warp().barrier.generation % 2];
  memcpy(slots[lane()], &value, sizeof(T));
  wait_for_warp();
  return slots;
}

static void require(bool holds, const char* what) {
  if (!holds && !mistake) mistake = what;
}

template <class T> T from_lane(T value, int source) {
  T other;
  memcpy(&other, from_lanes(value)[source], sizeof(T));
  return other;
}

// A fiber lives on when its thread is done, and is the same thread of the next block.
static void run_fiber() {
  for (;;) {
    body(arguments_of_body);
    fibers[now].done = true;
    alive--;
    warp().alive--;
    progress = true;
    give_way();
  }
}

const size_t DYNAMIC = 99 * 1024;  // what a block may ask for where it is least, on sm_86 and sm_120
alignas(16) __shared__ char dynamic_memory[DYNAMIC + 1024];
static char* const end_of_dynamic = dynamic_memory + sizeof(dynamic_memory);

// Nothing, or why the block could not be run to its end.
static const char* run_block(int n, bool reversed) {
  in_reverse = reversed;
  mistake = nullptr;
  if (fibers.size() < size_t(n)) fibers.resize(n);
  warps.assign((n + WARP - 1) / WARP, Warp());
  memset(__start_shared_memory, 0xFF, dynamic_memory + dynamic_size - __start_shared_memory);
  memset(end_of_dynamic, 0xFF, __stop_shared_memory - end_of_dynamic);
  block_barrier = Barrier();
  alive = size_of_block = n;
  for (int i = 0; i < n; i++) {
    fibers[i].done = false;
    fibers[i].copies.clear();
    fibers[i].index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
    warps[i / WARP].alive++;
  }
  while (alive) {
    bool any = false;
    for (int first = 0; first < n; first += WARP) {
      do {  // a warp goes as far as it can before the next: who needs another has to wait at a barrier
        progress = false;
        place = first - 1;
        end_of_warp = first + WARP < n ? first + WARP : n;
        while (next_thread()) go_on();
        any = any || progress;
      } while (progress);
    }
    if (!any) {
      fibers.clear();
      return "some threads wait at a barrier that the others never reach";
    }
  }
  return mistake;
}

static const char* run(const unsigned* grid, const unsigned* block, size_t shared, bool reversed) {
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  if (!(grid[0] && grid[1] && grid[2])) return "a grid without blocks";
  if (grid[1] > 65535 || grid[2] > 65535) return "a grid of more than 65535 blocks in y or z";
  if (!(block[0] && block[1] && block[2]) || block[0] * block[1] * block[2] > 1024) return "a block needs 1 to 1024 threads";
  if (shared > DYNAMIC) return "a block may have at most 99 KB of shared memory";
  dynamic_size = shared;
  char* rest = dynamic_memory + shared;  // no block may write there, so that it is filled and looked at once
  memset(rest, 0xFF, end_of_dynamic - rest);
  for (unsigned z = 0; z < grid[2]; z++)
    for (unsigned y = 0; y < grid[1]; y++)
      for (unsigned x = 0; x < grid[0]; x++) {
        blockIdx = {x, y, z};
        if (const char* error = run_block(block[0] * block[1] * block[2], reversed)) return error;
      }
  // Each byte has to be the one before, and the first 0xFF.
  if (*rest == char(0xFF) && !memcmp(rest, rest + 1, end_of_dynamic - rest - 1)) return nullptr;
  return "it wrote beyond the shared memory that it asked for";
}

template <class... P, size_t... I>
const char* launch(void (*kernel)(P...), const unsigned* grid, const unsigned* block, size_t shared, void** arguments,
                   bool reversed, std::index_sequence<I...>) {
  auto work = [=] { kernel(*(P*)arguments[I]...); };
  body = [](const void* given) { (*(const decltype(work)*)given)(); };
  arguments_of_body = &work;
  return run(grid, block, shared, reversed);
}

template <class... P> const char* launch(void (*kernel)(P...), const unsigned* grid, const unsigned* block,
                                         size_t shared, void** arguments, bool reversed) {
  return launch(kernel, grid, block, shared, arguments, reversed, std::index_sequence_for<P...>());
}

template <class... P> int sizes_of(void (*)(P...), int* sizes) {
  for (int size : {int(sizeof(P))...}) *sizes++ = size;
  return sizeof...(P);
}

}  // namespace on_cpu

// What a kernel is called by: with the addresses of its arguments.
#define RUN_ON_CPU(name)                                                                                    \
  extern "C" int sizes_of_##name(int* sizes) { return on_cpu::sizes_of(name, sizes); }                      \
  extern "C" const char* launch_##name(const unsigned* grid, const unsigned* block, size_t shared,          \
                                       void** arguments, bool reversed) {                                   \
    return on_cpu::launch(name, grid, block, shared, arguments, reversed);                                  \
  }

static void __syncthreads() { on_cpu::wait(on_cpu::block_barrier, on_cpu::alive); }
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) { return on_cpu::from_lane(value, on_cpu::lane() ^ mask); }
template <class T> T __shfl_sync(unsigned, T value, int source) { return on_cpu::from_lane(value, source); }
static unsigned __ballot_sync(unsigned, int predicate) {
  char(*of_lanes)[64] = on_cpu::from_lanes(char(predicate != 0));
  unsigned bits = 0;
  for (int i = 0; i < on_cpu::WARP; i++) bits |= unsigned(of_lanes[i][0]) << i;
  return bits;
}
static int __syncthreads_and(int predicate) {
  static int all;
  __syncthreads();
  all = 1;
  __syncthreads();
  if (!predicate) all = 0;
  __syncthreads();
  return all;
}
static int __popc(unsigned bits) { return __builtin_popcount(bits); }
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }

// What the bits of a number of half precision mean.

static float float_of_half(unsigned short bits) {
  _Float16 x;
  memcpy(&x, &bits, 2);
  return x;
}

static unsigned short half_of_float(float x) {
  _Float16 half = x;
  unsigned short bits;
  memcpy(&bits, &half, 2);
  return bits;
}

// What npformer/gpu/cuda/tensor_cores.cuh says of a warp's registers. Numbers of half precision are known by their bits.

#if defined(BFLOAT16)
static float float_of_bits(unsigned short bits) {
  unsigned wide = unsigned(bits) << 16;
  float x;
  memcpy(&x, &wide, 4);
  return x;
}

static unsigned bits_of_float(float x) {
  unsigned wide;
  memcpy(&wide, &x, 4);
  return isnan(x) ? 0x7fff : (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
}
#else
static float float_of_bits(unsigned short bits) { return float_of_half(bits); }
static unsigned bits_of_float(float x) { return half_of_float(x); }
#endif

static unsigned pack(float first, float second) { return bits_of_float(first) | bits_of_float(second) << 16; }
static float power_of_two(float x) { return exp2(x); }

static void multiply_add(float* upper, float* lower, const unsigned* a, unsigned b0, unsigned b1) {
  struct Factors { unsigned a[4], b[2]; } mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  char(*of_lanes)[64] = on_cpu::from_lanes(mine);
  int group = on_cpu::lane() / 4, pair = on_cpu::lane() % 4 * 2;
  for (int k = 0; k < 16; k++)
    for (int j = 0; j < 2; j++) {
      const Factors& left = *(Factors*)of_lanes[group * 4 + k % 8 / 2];
      const Factors& right = *(Factors*)of_lanes[(pair + j) * 4 + k % 8 / 2];
      float b = float_of_bits(right.b[k / 8] >> k % 2 * 16);
      upper[j] += float_of_bits(left.a[k / 8 * 2] >> k % 2 * 16) * b;
      lower[j] += float_of_bits(left.a[k / 8 * 2 + 1] >> k % 2 * 16) * b;
    }
}

template <class T> void load_matrices(unsigned* x, const T* row, bool transposed = false) {
  on_cpu::require((uintptr_t)row % 16 == 0, "a row of a matrix is not at a multiple of 16 bytes");
  char(*of_lanes)[64] = on_cpu::from_lanes((const unsigned short*)row);
  int group = on_cpu::lane() / 4, pair = on_cpu::lane() % 4 * 2;
  for (int matrix = 0; matrix < 4; matrix++) {
    auto at = [&](int row, int column) {
      return unsigned((*(const unsigned short**)of_lanes[8 * matrix + row])[column]);
    };
    x[matrix] = transposed ? at(pair, group) | at(pair + 1, group) << 16 : at(group, pair) | at(group, pair + 1) << 16;
  }
}

template <class T> void load_matrices_transposed(unsigned* x, const T* row) { load_matrices(x, row, true); }

namespace on_cpu {
static void make(const Copy& copy) {
  if (copy.inside) memcpy(copy.to, copy.from, 16);
  else memset(copy.to, 0, 16);
}
}  // namespace on_cpu

template <class T> void begin_copy(T* to, const T* from, bool inside) {
  on_cpu::require(((uintptr_t)to | (uintptr_t)from) % 16 == 0, "a copy is not at a multiple of 16 bytes");
  on_cpu::Copy copy = {to, from, inside};
  if (on_cpu::in_reverse) on_cpu::make(copy);
  else on_cpu::fibers[on_cpu::now].copies.push_back(copy);
}

static void wait_for_copies() {
  for (const on_cpu::Copy& copy : on_cpu::fibers[on_cpu::now].copies) on_cpu::make(copy);
  on_cpu::fibers[on_cpu::now].copies.clear();
}

// Of what type, the kernel says.
struct SharedMemory {
  template <class T> operator T*() const { return (T*)on_cpu::dynamic_memory; }
};
static SharedMemory shared_memory() { return {}; }
