// What an optimizer does to each parameter, in one pass. Parameters and moments are of type REAL.

#include "common.cuh"

extern "C" __global__ void sgd(
    REAL* param, const STORED* grad, REAL* velocity, Index size, REAL lr, REAL momentum, int nesterov, REAL grad_scale) {
  Index i = this_element();
  if (i >= size) return;
  REAL step = load(grad, i) * grad_scale;
  if (velocity) {
    velocity[i] = velocity[i] * momentum + step;
    step = nesterov ? step + momentum * velocity[i] : velocity[i];
  }
  param[i] -= lr * step;
}

// m and v are running means of g and g²; m_scale and v_scale correct for their start at 0.
extern "C" __global__ void adam(
    REAL* param, const STORED* grad, REAL* m, REAL* v, Index size, REAL lr, REAL one_minus_beta1, REAL one_minus_beta2,
    REAL eps, REAL weight_decay, REAL grad_scale, REAL m_scale, REAL v_scale) {
  Index i = this_element();
  if (i >= size) return;
  REAL g = load(grad, i) * grad_scale;
  m[i] += one_minus_beta1 * (g - m[i]);
  v[i] += one_minus_beta2 * (g * g - v[i]);
  param[i] -= lr * (m[i] * m_scale / (sqrt(v[i] * v_scale) + eps) + weight_decay * param[i]);
}
