// A make-believe cuBLAS: the products that CuPy and npformer call, in double precision, rounded once.
//
// It checks the leading dimensions. A product that is recorded needs a workspace that the caller has set, as the
// library could not allocate one then (CuPy sets none).

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "make_believe.h"

namespace {

enum Status { SUCCESS = 0, INVALID = 7, INTERNAL = 14 };
enum Type { FLOAT32 = 0, FLOAT64 = 1, FLOAT16 = 2, BFLOAT16 = 14 };

struct Handle {
  void* stream = nullptr;
  bool has_workspace = false;
};

struct Matrix {
  const void* at;
  int type, step;
};

int width(int type) { return type == FLOAT64 ? 8 : type == FLOAT32 ? 4 : 2; }

double read(const void* x, int type, size_t i) {
  if (type == FLOAT64) return ((double*)x)[i];
  if (type == FLOAT32) return ((float*)x)[i];
  if (type == FLOAT16) return ((_Float16*)x)[i];
  uint32_t bits = uint32_t(((uint16_t*)x)[i]) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

void write(void* x, int type, size_t i, double exact) {
  float value = exact;
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (type == FLOAT64) ((double*)x)[i] = exact;
  else if (type == FLOAT32) ((float*)x)[i] = value;
  else if (type == FLOAT16) ((_Float16*)x)[i] = (_Float16)value;
  else ((uint16_t*)x)[i] = value != value ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// The vectors of k numbers that are multiplied, one after another: rows of op(A), or columns of op(B).
std::vector<double> vectors(Matrix x, int n, int k, bool are_columns) {
  std::vector<double> values(size_t(n) * k);
  for (int i = 0; i < n; i++)
    for (int l = 0; l < k; l++)
      values[size_t(i) * k + l] = read(x.at, x.type, are_columns ? size_t(i) * x.step + l : size_t(l) * x.step + i);
  return values;
}

// C = alpha op(A) op(B) + beta C, all column-major.
void multiply(int op_a, int op_b, int m, int n, int k, double alpha, Matrix a, Matrix b, double beta, Matrix c) {
  auto left = vectors(a, m, k, op_a), right = vectors(b, n, k, !op_b);
  for (int j = 0; j < n; j++)
    for (int i = 0; i < m; i++) {
      double sum = 0;
      for (int l = 0; l < k; l++) sum += left[size_t(i) * k + l] * right[size_t(j) * k + l];
      size_t at = size_t(j) * c.step + i;
      write((void*)c.at, c.type, at, alpha * sum + (beta ? beta * read(c.at, c.type, at) : 0));
    }
}

int least(int n) { return n > 1 ? n : 1; }

// The same for many matrices, ``next`` numbers apart.
Status multiply_each(Handle* handle, int op_a, int op_b, int m, int n, int k, const void* alpha, Matrix a,
                     long long next_a, Matrix b, long long next_b, const void* beta, Matrix c, long long next_c, int count) {
  if (a.step < least(op_a ? k : m) || b.step < least(op_b ? n : k) || c.step < least(m) || m < 0 || n < 0 || k < 0)
    return INVALID;
  if (!handle->has_workspace && captures(handle->stream, true)) return INTERNAL;
  double by = read(alpha, c.type == FLOAT64 ? FLOAT64 : FLOAT32, 0), before = read(beta, c.type == FLOAT64 ? FLOAT64 : FLOAT32, 0);
  auto moved = [](Matrix x, long long numbers) { return Matrix{(const char*)x.at + numbers * width(x.type), x.type, x.step}; };
  int error = enqueue(handle->stream, [=] {
    for (long long i = 0; i < count; i++)
      multiply(op_a, op_b, m, n, k, by, moved(a, i * next_a), moved(b, i * next_b), before, moved(c, i * next_c));
  });
  return error ? INTERNAL : SUCCESS;
}

// The same for matrices whose addresses are on the device.
template <class T> Status multiply_listed(Handle* handle, int type, int op_a, int op_b, int m, int n, int k, const T* alpha,
                                          const T** a, int step_a, const T** b, int step_b, const T* beta, T** c,
                                          int step_c, int count) {
  double by = *alpha, before = *beta;
  int error = enqueue(handle->stream, [=] {
    for (int i = 0; i < count; i++)
      multiply(op_a, op_b, m, n, k, by, {a[i], type, step_a}, {b[i], type, step_b}, before, {c[i], type, step_c});
  });
  return error ? INTERNAL : SUCCESS;
}

}  // namespace

extern "C" {

int cublasCreate_v2(void** handle) { return *handle = new Handle, SUCCESS; }
int cublasSetMathMode(void*, int) { return SUCCESS; }
int cublasSetStream_v2(void* handle, void* stream) {
  *(Handle*)handle = {stream, false};  // setting the stream resets the workspace
  return SUCCESS;
}
int cublasSetWorkspace_v2(void* handle, void* workspace, size_t size) {
  if (!workspace || !size || (uintptr_t)workspace % 256) return INVALID;
  ((Handle*)handle)->has_workspace = true;
  return SUCCESS;
}

int cublasGemmEx(void* handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a, int type_a,
                 int step_a, const void* b, int type_b, int step_b, const void* beta, void* c, int type_c, int step_c,
                 int, int) {
  return multiply_each((Handle*)handle, op_a, op_b, m, n, k, alpha, {a, type_a, step_a}, 0, {b, type_b, step_b}, 0, beta,
                       {c, type_c, step_c}, 0, 1);
}
int cublasGemmStridedBatchedEx(void* handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a,
                               int type_a, int step_a, long long next_a, const void* b, int type_b, int step_b,
                               long long next_b, const void* beta, void* c, int type_c, int step_c, long long next_c,
                               int count, int, int) {
  return multiply_each((Handle*)handle, op_a, op_b, m, n, k, alpha, {a, type_a, step_a}, next_a, {b, type_b, step_b},
                       next_b, beta, {c, type_c, step_c}, next_c, count);
}
int cublasSgemmBatched(void* handle, int op_a, int op_b, int m, int n, int k, const float* alpha, const float** a,
                       int step_a, const float** b, int step_b, const float* beta, float** c, int step_c, int count) {
  return multiply_listed((Handle*)handle, FLOAT32, op_a, op_b, m, n, k, alpha, a, step_a, b, step_b, beta, c, step_c, count);
}
int cublasDgemmBatched(void* handle, int op_a, int op_b, int m, int n, int k, const double* alpha, const double** a,
                       int step_a, const double** b, int step_b, const double* beta, double** c, int step_c, int count) {
  return multiply_listed((Handle*)handle, FLOAT64, op_a, op_b, m, n, k, alpha, a, step_a, b, step_b, beta, c, step_c, count);
}

// The names by which CuPy calls them.
int cublasCreate(void** handle) { return cublasCreate_v2(handle); }
int cublasSetStream(void* handle, void* stream) { return cublasSetStream_v2(handle, stream); }
int cublasGemmEx_v11(void*, ...) __attribute__((alias("cublasGemmEx")));
int cublasGemmStridedBatchedEx_v11(void*, ...) __attribute__((alias("cublasGemmStridedBatchedEx")));

}  // extern "C"
