// A make-believe CUDA runtime and driver, on host memory. CuPy calls it instead of CUDA: see build.py.
//
// It is as strict as CUDA where CuPy's users make mistakes, and as late as CUDA may be:
// - work of a stream is done when somebody waits for it, not before
// - what may not be called during a capture spoils it, and so does a call on the default stream if the stream that
//   captures is a blocking one
// - memory that was freed cannot be read; new memory holds NaN
// - there can be a limit of memory, and freeing memory during a capture can spoil it, as it may on some versions

#include "make_believe.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <xmmintrin.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

enum Error { SUCCESS, INVALID, NO_MEMORY, NOT_READY = 600, UNSUPPORTED = 900, INVALIDATED, IMPLICIT = 906, FAILED = 999 };
enum Attribute { MULTIPROCESSORS = 16, MAJOR = 75, MINOR = 76 };
const int FUNCTION_MAX_DYNAMIC_SHARED = 8;

typedef std::function<void()> Work;
typedef std::vector<Work> Graph;

struct Stream {
  bool blocking;
  std::deque<Work> waiting;
  std::unique_ptr<Graph> captured;  // if it captures
  bool spoilt = false;
};

struct Event {
  Stream* stream = nullptr;
  std::shared_ptr<bool> done = std::make_shared<bool>(true);
};

struct Kernel {
  std::string name;
  const char* (*launch)(const unsigned* grid, const unsigned* block, size_t shared, void** arguments, bool reversed);
  std::vector<int> sizes;  // of the arguments
  int max_dynamic_shared = 48 * 1024;
};

std::recursive_mutex mutex;
struct Call {  // one call at a time
  Call() { mutex.lock(); }
  ~Call() { mutex.unlock(); }
};

Stream default_stream{false};
std::vector<Stream*> streams{&default_stream};
std::map<char*, size_t> allocated, pinned;
size_t used, limit = 80ull << 30;
bool freeing_spoils;
std::string failure;  // of the first kernel that failed

int number_of(const char* variable, int otherwise) {
  const char* text = getenv(variable);
  return text && *text ? atoi(text) : otherwise;
}
int compute_capability() {
  static int known = number_of("MAKE_BELIEVE_CC", 90);
  return known;
}
bool contracts() {  // whether products and sums are fused and small numbers flushed to zero, as CuPy's compiler does
  static bool known = number_of("MAKE_BELIEVE_FMA", 0);
  return known;
}

Stream* stream_of(void* handle) { return handle ? (Stream*)handle : &default_stream; }

void do_next(Stream* stream) {
  Work work = std::move(stream->waiting.front());
  stream->waiting.pop_front();
  work();
}
void finish(Stream* stream) {
  while (!stream->waiting.empty()) do_next(stream);
}
void finish_until(Stream* stream, const bool& done) {
  while (!done && !stream->waiting.empty()) do_next(stream);
}
void finish_all() {
  for (size_t i = 0; i < streams.size(); i++) finish(streams[i]);
}

// None of the blocking streams may capture while something is called on the default stream.
Error beside_default(Stream* stream) {
  for (Stream* other : streams)
    if (stream == &default_stream && other->blocking && other->captured) return other->spoilt = true, IMPLICIT;
  return SUCCESS;
}

// What comes next in one stream waits for what is in another now.
void wait_for(Stream* stream, Stream* other) {
  if (other->waiting.empty()) return;
  auto done = std::make_shared<bool>(false);
  other->waiting.push_back([=] { *done = true; });
  stream->waiting.push_back([=] { finish_until(other, *done); });
}

// The default stream waits for all blocking streams, and they for it.
void wait_for_default(Stream* stream) {
  if (stream == &default_stream) {
    for (Stream* other : streams)
      if (other->blocking) wait_for(stream, other);
  } else if (stream->blocking) {
    wait_for(stream, &default_stream);
  }
}

// Something that a stream cannot do while it captures.
Error refused(Stream* stream) {
  if (!stream->captured) return beside_default(stream);
  stream->spoilt = true;
  return UNSUPPORTED;
}

Error outcome() { return failure.empty() ? SUCCESS : FAILED; }

size_t pages(size_t size) { return (size + 4095) / 4096 * 4096; }

bool is_pinned(const void* address) {
  auto after = pinned.upper_bound((char*)address);
  return after != pinned.begin() && (--after, (char*)address < after->first + after->second);
}

void fail(const Kernel* kernel, const char* error) {
  failure = kernel->name + ": " + error;
  fprintf(stderr, "make-believe CUDA: %s\n", failure.c_str());
}

}  // namespace

int enqueue(void* handle, Work work) {
  Stream* stream = stream_of(handle);
  if (stream->captured) {
    if (stream->spoilt) return INVALIDATED;
    stream->captured->push_back(std::move(work));
    return SUCCESS;
  }
  if (Error error = beside_default(stream)) return error;
  wait_for_default(stream);
  stream->waiting.push_back(std::move(work));
  return SUCCESS;
}

bool captures(void* handle, bool spoil) {
  Stream* stream = stream_of(handle);
  if (stream->captured && spoil) stream->spoilt = true;
  return bool(stream->captured);
}

extern "C" {

// For tests.

void make_believe_limit(size_t bytes) { limit = bytes; }
size_t make_believe_used() { return used; }
void make_believe_freeing_spoils(bool yes) { freeing_spoils = yes; }

// The runtime.

const char* cudaGetErrorName(int error) {
  switch (error) {
    case NO_MEMORY: return "cudaErrorMemoryAllocation";
    case NOT_READY: return "cudaErrorNotReady";
    case UNSUPPORTED: return "cudaErrorStreamCaptureUnsupported";
    case INVALIDATED: return "cudaErrorStreamCaptureInvalidated";
    case IMPLICIT: return "cudaErrorStreamCaptureImplicit";
    case FAILED: return "cudaErrorUnknown";
    default: return "cudaErrorInvalidValue";
  }
}
const char* cudaGetErrorString(int error) { return error == FAILED ? failure.c_str() : "make-believe CUDA"; }
int cudaDriverGetVersion(int* version) { return *version = 13000, SUCCESS; }
int cudaRuntimeGetVersion(int* version) { return *version = 13000, SUCCESS; }
int cudaGetDevice(int* device) { return *device = 0, SUCCESS; }
int cudaGetDeviceCount(int* n) { return *n = 1, SUCCESS; }
int cudaDeviceGetAttribute(int* value, int attribute, int) {
  bool is_known = attribute == MULTIPROCESSORS || attribute == MAJOR || attribute == MINOR;
  *value = !is_known ? 1024 : attribute == MULTIPROCESSORS ? 132 : attribute == MAJOR ? compute_capability() / 10
                                                                                  : compute_capability() % 10;
  return SUCCESS;
}

int cudaMalloc(void** address, size_t size) {
  Call call;
  *address = nullptr;
  if (used + size > limit) return NO_MEMORY;
  *address = mmap(nullptr, pages(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(*address, 0xFF, pages(size));
  allocated[(char*)*address] = size;
  used += size;
  return SUCCESS;
}
int cudaFree(void* address) {
  Call call;
  if (!address) return SUCCESS;
  if (!allocated.count((char*)address)) return INVALID;
  finish_all();
  for (Stream* stream : streams)
    if (stream->captured && freeing_spoils) stream->spoilt = true;
  size_t size = allocated[(char*)address];
  mmap(address, pages(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  allocated.erase((char*)address);
  used -= size;
  return SUCCESS;
}
int cudaHostAlloc(void** address, size_t size, unsigned) {
  Call call;
  *address = aligned_alloc(4096, pages(size));
  pinned[(char*)*address] = size;
  return SUCCESS;
}
int cudaFreeHost(void* address) {
  Call call;
  finish_all();
  pinned.erase((char*)address);
  free(address);
  return SUCCESS;
}
int cudaMemGetInfo(size_t* unused, size_t* total) {
  Call call;
  *unused = limit - used;
  *total = limit;
  return SUCCESS;
}
int cudaPointerGetAttributes(void* attributes, const void* address) {
  Call call;
  const int UNKNOWN = 0, HOST = 1;
  *(int*)attributes = is_pinned(address) ? HOST : UNKNOWN;  // the type, which is all that CuPy asks for
  return SUCCESS;
}

int cudaMemcpyAsync(void* to, const void* from, size_t size, int kind, void* handle) {
  Call call;
  const int TO_DEVICE = 1, TO_HOST = 2;
  const void* on_host = kind == TO_DEVICE ? from : kind == TO_HOST ? to : nullptr;
  if (!on_host || is_pinned(on_host)) return enqueue(handle, [=] { memmove(to, from, size); });
  Stream* stream = stream_of(handle);  // memory that is not pinned is copied before the call returns
  if (Error error = refused(stream)) return error;
  wait_for_default(stream);
  finish(stream);
  memmove(to, from, size);
  return outcome();
}
int cudaMemcpy(void* to, const void* from, size_t size, int) {
  Call call;
  if (Error error = refused(&default_stream)) return error;
  wait_for_default(&default_stream);
  finish(&default_stream);
  memmove(to, from, size);
  return outcome();
}
int cudaMemsetAsync(void* to, int value, size_t size, void* stream) {
  Call call;
  return enqueue(stream, [=] { memset(to, value, size); });
}
int cudaMemset(void* to, int value, size_t size) { return cudaMemsetAsync(to, value, size, nullptr); }

int cudaStreamCreateWithPriority(void** handle, unsigned flags, int) {
  Call call;
  streams.push_back(new Stream{!(flags & 1)});
  *handle = streams.back();
  return SUCCESS;
}
int cudaStreamGetFlags(void* stream, unsigned* flags) { return *flags = !stream_of(stream)->blocking, SUCCESS; }
int cudaStreamDestroy(void* handle) {
  Call call;
  finish(stream_of(handle));  // it stays in the list: events may still refer to it
  return SUCCESS;
}
int cudaStreamSynchronize(void* handle) {
  Call call;
  if (Error error = refused(stream_of(handle))) return error;
  finish(stream_of(handle));
  return outcome();
}
int cudaStreamQuery(void* handle) {
  Call call;
  if (Error error = refused(stream_of(handle))) return error;
  return stream_of(handle)->waiting.empty() ? outcome() : NOT_READY;
}
int cudaDeviceSynchronize() {
  Call call;
  for (Stream* stream : streams)
    if (stream->captured) return stream->spoilt = true, UNSUPPORTED;
  finish_all();
  return outcome();
}

int cudaEventCreateWithFlags(void** event, unsigned) { return *event = new Event, SUCCESS; }
int cudaEventCreate(void** event) { return cudaEventCreateWithFlags(event, 0); }
int cudaEventDestroy(void* event) { return delete (Event*)event, SUCCESS; }
int cudaEventRecord(void* handle, void* stream) {
  Call call;
  Event* event = (Event*)handle;
  auto done = std::make_shared<bool>(false);
  *event = {stream_of(stream), done};
  return enqueue(stream, [=] { *done = true; });
}
int cudaEventQuery(void* event) {
  Call call;
  return *((Event*)event)->done ? SUCCESS : NOT_READY;
}
int cudaEventSynchronize(void* handle) {
  Call call;
  Event* event = (Event*)handle;
  finish_until(event->stream, *event->done);
  return outcome();
}
int cudaStreamWaitEvent(void* stream, void* handle, unsigned) {
  Call call;
  Event event = *(Event*)handle;
  return enqueue(stream, [=] { finish_until(event.stream, *event.done); });
}

int cudaStreamBeginCapture(void* handle, int) {
  Call call;
  Stream* stream = stream_of(handle);
  if (stream == &default_stream || stream->captured) return INVALID;
  stream->captured = std::make_unique<Graph>();
  stream->spoilt = false;
  return SUCCESS;
}
int cudaStreamEndCapture(void* handle, void** graph) {
  Call call;
  Stream* stream = stream_of(handle);
  *graph = nullptr;
  if (!stream->captured) return INVALID;
  Graph* made = stream->captured.release();
  if (stream->spoilt) return delete made, INVALIDATED;
  *graph = made;
  return SUCCESS;
}
int cudaStreamIsCapturing(void* handle, int* status) {
  Call call;
  Stream* stream = stream_of(handle);
  *status = !stream->captured ? 0 : stream->spoilt ? 2 : 1;
  return stream == &default_stream ? beside_default(stream) : SUCCESS;
}
int cudaGraphInstantiate(void** made, void* graph, unsigned long long) {
  return *made = new std::shared_ptr<Graph>(new Graph(*(Graph*)graph)), SUCCESS;
}
int cudaGraphDestroy(void* graph) { return delete (Graph*)graph, SUCCESS; }
int cudaGraphExecDestroy(void* made) { return delete (std::shared_ptr<Graph>*)made, SUCCESS; }
int cudaGraphUpload(void*, void*) { return SUCCESS; }
int cudaGraphLaunch(void* made, void* stream) {
  Call call;
  auto graph = *(std::shared_ptr<Graph>*)made;
  return enqueue(stream, [=] {
    for (const Work& work : *graph) work();
  });
}

// The driver. A module is a library that cupy_without_gpu.py has compiled.

int cuGetErrorName(int error, const char** name) { return *name = cudaGetErrorName(error), SUCCESS; }
int cuGetErrorString(int, const char** text) { return *text = failure.c_str(), SUCCESS; }
int cuDevicePrimaryCtxRelease(int) { return SUCCESS; }
int cuCtxGetCurrent(void** context) { return *context = &default_stream, SUCCESS; }
int cuCtxSetCurrent(void*) { return SUCCESS; }
int cuCtxGetDevice(int* device) { return *device = 0, SUCCESS; }

int cuModuleLoadData(void** module, const char* path) {
  Call call;
  *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!*module) failure = dlerror();
  return outcome();
}
int cuModuleUnload(void*) { return SUCCESS; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  Call call;
  static std::map<std::pair<void*, std::string>, Kernel> kernels;
  Kernel& kernel = kernels[{module, name}];
  if (!kernel.launch) {
    auto sizes_of = (int (*)(int*))dlsym(module, (std::string("sizes_of_") + name).c_str());
    kernel.name = name;
    kernel.launch = (decltype(kernel.launch))dlsym(module, (std::string("launch_") + name).c_str());
    if (!kernel.launch || !sizes_of) return fail(&kernel, "there is no such kernel"), FAILED;
    int sizes[256], n = sizes_of(sizes);
    kernel.sizes.assign(sizes, sizes + n);
  }
  *function = &kernel;
  return SUCCESS;
}
int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** given, void**) {
  Call call;
  const Kernel* kernel = (Kernel*)function;
  bool fits = gx && gx <= 2147483647u && gy && gy <= 65535 && gz && gz <= 65535 && bx && by && bz &&
              bx * by * bz <= 1024 && int(shared) <= kernel->max_dynamic_shared;
  if (!fits) {
    fprintf(stderr, "make-believe CUDA: %s <%u %u %u, %u %u %u, %u>\n", kernel->name.c_str(), gx, gy, gz, bx, by, bz, shared);
    return INVALID;
  }
  std::vector<std::vector<char>> values;
  for (size_t i = 0; i < kernel->sizes.size(); i++)
    values.emplace_back((char*)given[i], (char*)given[i] + kernel->sizes[i]);
  return enqueue(stream, [=] {
    std::vector<void*> arguments;
    for (const auto& value : values) arguments.push_back((void*)value.data());
    const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    const unsigned FLUSH_TO_ZERO = 0x8040, before = _mm_getcsr();
    if (contracts()) _mm_setcsr(before | FLUSH_TO_ZERO);
    const char* error = kernel->launch(grid, block, shared, arguments.data(), false);
    _mm_setcsr(before);
    if (error) fail(kernel, error);
  });
}
int cuFuncGetAttribute(int* value, int attribute, void* function) {
  *value = attribute == FUNCTION_MAX_DYNAMIC_SHARED ? ((Kernel*)function)->max_dynamic_shared : 0;
  return SUCCESS;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (attribute != FUNCTION_MAX_DYNAMIC_SHARED) return SUCCESS;
  if (value > (compute_capability() < 80 ? 64 : 99) * 1024) return INVALID;
  ((Kernel*)function)->max_dynamic_shared = value;
  return SUCCESS;
}

}  // extern "C"
