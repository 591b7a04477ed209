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
    REAL* param, const STORED* grad, REAL* m, REAL* v, Index size, REAL one_minus_beta1, REAL one_minus_beta2,
    REAL eps, REAL weight_decay, const double* lr, const double* m_scale, const double* v_scale,
    const double* grad_scale) {
  Index i = this_element();
  if (i >= size || isnan(*grad_scale)) return;
  REAL g = load(grad, i) * REAL(*grad_scale);
  m[i] += one_minus_beta1 * (g - m[i]);
  v[i] += one_minus_beta2 * (g * g - v[i]);
  REAL step = m[i] * REAL(*m_scale) / (sqrt(v[i] * REAL(*v_scale)) + eps);
  param[i] -= REAL(*lr) * (step + weight_decay * param[i]);
}
