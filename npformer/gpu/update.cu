// What an optimizer does to each parameter, in one pass. Parameters and moments are of type REAL. A grad_scale that is
// NaN means that there is no step.

#include "common.cuh"

extern "C" __global__ void sgd(
    REAL* param, const STORED* grad, REAL* velocity, Index size, REAL momentum, int nesterov, const double* lr,
    const double* grad_scale) {
  Index i = this_element();
  if (i >= size || isnan(*grad_scale)) return;
  REAL step = load(grad, i) * REAL(*grad_scale);
  if (velocity) {
    velocity[i] = velocity[i] * momentum + step;
    step = nesterov ? step + momentum * velocity[i] : velocity[i];
  }
  param[i] -= REAL(*lr) * step;
}

// m and v are running means of g and g²; m_scale and v_scale correct for their start at 0.
extern "C" __global__ void adam(
    REAL* param, const STORED* grad, REAL* m, REAL* v, Index size, double beta1, double beta2, REAL eps,
    REAL weight_decay, const double* lr, const double* step, const double* grad_scale) {
  __shared__ REAL m_scale, v_scale;
  if (threadIdx.x == 0) {
    m_scale = 1 / (1 - pow(beta1, *step));
    v_scale = 1 / (1 - pow(beta2, *step));
  }
  __syncthreads();
  Index i = this_element();
  if (i >= size || isnan(*grad_scale)) return;
  REAL g = load(grad, i) * REAL(*grad_scale);
  m[i] += REAL(1 - beta1) * (g - m[i]);
  v[i] += REAL(1 - beta2) * (g * g - v[i]);
  param[i] -= REAL(*lr) * (m[i] * m_scale / (sqrt(v[i] * v_scale) + eps) + weight_decay * param[i]);
}
