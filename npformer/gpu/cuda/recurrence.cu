// Steps of recurrent cells: everything but the product with the state, in one pass. Arrays along a sequence are
// (B, T, width); each thread computes one number of the state at step t of sequence b. A step that the mask does not
// keep leaves the state unchanged.

#include "common.cuh"

// The indices of this thread's number.
struct Place {
  Index b, j, step, before;  // before: the index of the number in the states of the step before, or -1
  bool kept;
};

__device__ __forceinline__ Place this_place(Index T, Index D, Index t, Index before, const bool* keep_mask) {
  Index b = this_element() / D, j = this_element() % D;
  return {b, j, b * T + t, before < 0 ? -1 : (b * T + before) * D + j, !keep_mask || keep_mask[b * T + t]};
}

// h = (1 - z) n + z h, with r, z = σ(x + h U), n = tanh(x_n + r (h U_n + b)); h_gates is h U.
extern "C" __global__ void gru_step(
    const REAL* x_gates, const REAL* h_gates, const REAL* bias, const REAL* h0, const bool* keep_mask, REAL* states,
    REAL* gates, Index B, Index T, Index D, Index t, Index before) {
  if (this_element() >= B * D) return;
  Place at = this_place(T, D, t, before, keep_mask);
  const REAL *x = x_gates + at.step * 3 * D + at.j, *from_h = h_gates + at.b * 3 * D + at.j;
  REAL h = at.before < 0 ? h0[at.b * D + at.j] : states[at.before];
  REAL r = sigmoid(x[0] + from_h[0]), z = sigmoid(x[D] + from_h[D]);
  REAL h_n = from_h[2 * D] + bias[at.j], n = tanh(x[2 * D] + r * h_n);
  REAL* saved = gates + at.step * 4 * D + at.j;
  saved[0] = r, saved[D] = z, saved[2 * D] = n, saved[3 * D] = h_n;
  states[at.step * D + at.j] = at.kept ? (1 - z) * n + z * h : h;
}

// dh is the gradient of the state after this step, and becomes that of the state before it, without the part that comes
// through dh_gates.
extern "C" __global__ void gru_step_backward(
    const REAL* dstates, const REAL* h0, const bool* keep_mask, const REAL* states, const REAL* gates, REAL* dh,
    REAL* dx_gates, REAL* dh_gates, Index B, Index T, Index D, Index t, Index before) {
  if (this_element() >= B * D) return;
  Place at = this_place(T, D, t, before, keep_mask);
  REAL h = at.before < 0 ? h0[at.b * D + at.j] : states[at.before];
  const REAL* saved = gates + at.step * 4 * D + at.j;
  REAL r = saved[0], z = saved[D], n = saved[2 * D], h_n = saved[3 * D];
  REAL dnew = dh[at.b * D + at.j] + dstates[at.step * D + at.j];
  REAL da_n = at.kept ? dnew * (1 - z) * (1 - n * n) : REAL(0);
  REAL da_r = at.kept ? da_n * h_n * r * (1 - r) : REAL(0), da_z = at.kept ? dnew * (h - n) * z * (1 - z) : REAL(0);
  REAL *dx = dx_gates + at.step * 3 * D + at.j, *through = dh_gates + at.step * 3 * D + at.j;
  dx[0] = da_r, dx[D] = da_z, dx[2 * D] = da_n;
  through[0] = da_r, through[D] = da_z, through[2 * D] = at.kept ? da_n * r : REAL(0);
  dh[at.b * D + at.j] = at.kept ? dnew * z : dnew;
}

// c = f c + i g, h = o tanh(c), with i, f, o = σ(x + h U), g = tanh(x + h U).
extern "C" __global__ void lstm_step(
    const REAL* x_gates, const REAL* h_gates, const REAL* h0, const REAL* c0, const bool* keep_mask, REAL* states,
    REAL* cells, REAL* gates, Index B, Index T, Index D, Index t, Index before) {
  if (this_element() >= B * D) return;
  Place at = this_place(T, D, t, before, keep_mask);
  const REAL *x = x_gates + at.step * 4 * D + at.j, *from_h = h_gates + at.b * 4 * D + at.j;
  REAL h = at.before < 0 ? h0[at.b * D + at.j] : states[at.before];
  REAL c = at.before < 0 ? c0[at.b * D + at.j] : cells[at.before];
  REAL i = sigmoid(x[0] + from_h[0]), f = sigmoid(x[D] + from_h[D]);
  REAL g = tanh(x[2 * D] + from_h[2 * D]), o = sigmoid(x[3 * D] + from_h[3 * D]);
  REAL* saved = gates + at.step * 4 * D + at.j;
  saved[0] = i, saved[D] = f, saved[2 * D] = g, saved[3 * D] = o;
  REAL moved = f * c + i * g;
  states[at.step * D + at.j] = at.kept ? o * tanh(moved) : h;
  cells[at.step * D + at.j] = at.kept ? moved : c;
}

// dh and dc are the gradients of state and cell after this step, and become those before it, without the part that
// comes through dx_gates.
extern "C" __global__ void lstm_step_backward(
    const REAL* dstates, const REAL* dcells, const REAL* c0, const bool* keep_mask, const REAL* cells,
    const REAL* gates, REAL* dh, REAL* dc, REAL* dx_gates, Index B, Index T, Index D, Index t, Index before) {
  if (this_element() >= B * D) return;
  Place at = this_place(T, D, t, before, keep_mask);
  Index state = at.b * D + at.j, step = at.step * D + at.j;
  REAL c = at.before < 0 ? c0[state] : cells[at.before], tanh_c = tanh(cells[step]);
  const REAL* saved = gates + at.step * 4 * D + at.j;
  REAL i = saved[0], f = saved[D], g = saved[2 * D], o = saved[3 * D];
  REAL dnew_h = dh[state] + dstates[step], dnew_c = dcells ? dc[state] + dcells[step] : dc[state];
  REAL moved = dnew_c + dnew_h * o * (1 - tanh_c * tanh_c);
  REAL* dx = dx_gates + at.step * 4 * D + at.j;
  dx[0] = at.kept ? moved * g * i * (1 - i) : REAL(0);
  dx[D] = at.kept ? moved * c * f * (1 - f) : REAL(0);
  dx[2 * D] = at.kept ? moved * i * (1 - g * g) : REAL(0);
  dx[3 * D] = at.kept ? dnew_h * tanh_c * o * (1 - o) : REAL(0);
  dh[state] = at.kept ? REAL(0) : dnew_h;
  dc[state] = at.kept ? moved * f : dnew_c;
}
