// The parameter updates of the optimizers, in one pass, and the norm of the gradient. If grad_scale is NaN, the step is
// skipped.

#include "common.cuh"

// The norm of ``length`` numbers for each block, which divides them by the largest, so that no square overflows. In
// double precision the sum does not underflow, either.
extern "C" __global__ void norms_of_blocks(const STORED* x, double* norms, Index size, Index length) {
  Index start = Index(blockIdx.x) * length, stop = start + length < size ? start + length : size;
  double largest = 0, sum = 0;
  for (Index i = start + threadIdx.x; i < stop; i += blockDim.x) largest = max(largest, fabs(double(load(x, i))));
  largest = block_max(largest);
  double divisor = largest > 0 && isfinite(largest) ? largest : 1;
  for (Index i = start + threadIdx.x; i < stop; i += blockDim.x) {
    double scaled = double(load(x, i)) / divisor;
    sum += scaled * scaled;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) norms[blockIdx.x] = divisor * sqrt(sum);
}

// param -= lr g, or lr times the velocity, which becomes momentum velocity + g; with Nesterov's rule lr (g + momentum
// velocity). g is grad times grad_scale.
extern "C" __global__ void sgd(
    STORED* param, const STORED* grad, STORED* velocity, Index size, REAL momentum, bool nesterov, const double* lr,
    const double* grad_scale) {
  Index i = this_element();
  if (i >= size || isnan(*grad_scale)) return;
  REAL step = load(grad, i) * REAL(*grad_scale);
  if (velocity) {
    REAL speed = load(velocity, i) * momentum + step;
    store(velocity, i, speed);
    step = nesterov ? step + momentum * speed : speed;
  }
  store(param, i, load(param, i) - REAL(*lr) * step);
}

// param -= lr (m m_scale / (√(v v_scale) + eps) + weight_decay param), where m and v are running means of g and g², and
// m_scale and v_scale correct their bias from starting at 0.
extern "C" __global__ void adam(
    STORED* param, const STORED* grad, STORED* m, STORED* v, Index size, REAL one_minus_beta1, REAL one_minus_beta2,
    REAL eps, REAL weight_decay, const double* lr, const double* m_scale, const double* v_scale,
    const double* grad_scale) {
  Index i = this_element();
  if (i >= size || isnan(*grad_scale)) return;
  REAL g = load(grad, i) * REAL(*grad_scale), mean = load(m, i), mean_square = load(v, i), old = load(param, i);
  mean += one_minus_beta1 * (g - mean);
  mean_square += one_minus_beta2 * (g * g - mean_square);
  REAL step = mean * REAL(*m_scale) / (sqrt(mean_square * REAL(*v_scale)) + eps);
  store(m, i, mean);
  store(v, i, mean_square);
  store(param, i, old - REAL(*lr) * (step + weight_decay * old));
}
