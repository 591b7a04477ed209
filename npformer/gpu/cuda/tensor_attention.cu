// Computes the same as flash_attention.cu, on tensor cores, for arrays of half precision whose rows can be copied in
// pieces of 16 bytes.
//
// A block keeps ROWS rows, which are queries or, for dk and dv, keys; each of its WARPS warps has ROWS / WARPS of them.
// The block loops over the rows of the other arrays in tiles of TILE rows: while one tile is used, the next is loaded.
// Weights never leave the registers: the result of one product of tiles is the left factor of the next.
//
// On tensor cores 0 · NaN is NaN, but a weight of 0 should hide NaN and inf. So if a result is not finite, the block
// computes it again, number by number, without the terms of weight 0. This is rare.
//
// Macros to set with -D: WIDTH, a multiple of 16 that is not less than the head widths; ROWS, a multiple of 64; TILE, a
// multiple of 16.

#if !defined(FLOAT16) && !defined(BFLOAT16)
#define BFLOAT16
#endif

#include "flash_attention.cuh"
#include "tensor_cores.cuh"

#ifndef WIDTH
#define WIDTH 64
#define ROWS 64
#define TILE 64
#endif

const int WARPS = 4, WARP_ROWS = ROWS / WARPS;
const int STEP = WIDTH + 8;  // from row to row of a tile: padded by 16 bytes, so that 8 rows are in different banks
const float LOG2_E = 1.44269504f;

// exp(x). Of large scores the difference is taken first: times log2(e), both would lose its digits.
__device__ __forceinline__ float exponential(float x) { return power_of_two(x * LOG2_E); }

// A thread's numbers of a matrix that has the rows of its warp: Scores for products with the rows of a tile, Result for
// a result. Element [r][c] is in row row_of(r) of the warp and in column column_of(c).
const int N_ROWS = WARP_ROWS / 8, N_SCORES = TILE / 4, N_RESULTS = WIDTH / 4;
typedef float Scores[N_ROWS][N_SCORES];
typedef float Result[N_ROWS][N_RESULTS];

__device__ __forceinline__ int row_of(int r) { return 8 * r + group_index(); }
__device__ __forceinline__ int column_of(int c) { return c / 2 * 8 + pair_index() + c % 2; }
__device__ __forceinline__ int first_row_of_warp() { return warp_index() * WARP_ROWS; }

// The rows of an array, n of them, each of width numbers; step is the distance from one to the next.
struct Rows {
  const STORED* x;
  Index n, step, width;
};

// Begins to copy n rows, from the row `first` on, into a tile, and zeros beyond the end of the array.
__device__ __forceinline__ void begin_tile(const Rows& rows, Index first, int n, STORED* tile) {
  for (int i = threadIdx.x; i < n * (WIDTH / 8); i += 32 * WARPS) {
    int row = i / (WIDTH / 8), column = i % (WIDTH / 8) * 8;
    bool inside = first + row < rows.n && column < rows.width;
    begin_copy(tile + row * STEP + column, inside ? rows.x + (first + row) * rows.step + column : rows.x, inside);
  }
}

// Two arrays over which a block loops, and the memory for two tiles of each.
struct Passing {
  Rows x, y;
  STORED* tiles;
};

__device__ __forceinline__ STORED* x_tile(const Passing& two, int turn) { return two.tiles + turn * 2 * TILE * STEP; }
__device__ __forceinline__ STORED* y_tile(const Passing& two, int turn) { return x_tile(two, turn) + TILE * STEP; }

__device__ __forceinline__ void begin_tiles(const Passing& two, Index first, int turn) {
  begin_tile(two.x, first, TILE, x_tile(two, turn));
  begin_tile(two.y, first, TILE, y_tile(two, turn));
}

// Waits for the tiles of this turn, and begins to copy those of the next turn.
__device__ __forceinline__ void take_turn(const Passing& two, Index next, Index end, int turn) {
  wait_for_copies();
  __syncthreads();
  if (next < end) begin_tiles(two, next, 1 - turn);
}

// out, from column c on, += left right for two matrices side by side.
template <class Matrix>
__device__ __forceinline__ void multiply_rows(Matrix& out, int c, unsigned left[N_ROWS / 2][4], const unsigned* right) {
#pragma unroll
  for (int r = 0; r < N_ROWS; r += 2) {
    multiply_add(out[r] + c, out[r + 1] + c, left[r / 2], right[0], right[1]);
    multiply_add(out[r] + c + 2, out[r + 1] + c + 2, left[r / 2], right[2], right[3]);
  }
}

// out += a bᵀ, where a has the rows of the warp, and b one row for each column of out.
__device__ __forceinline__ void add_scores(Scores& out, const STORED* a, const STORED* b) {
#pragma unroll
  for (int k = 0; k < WIDTH; k += 16) {
    unsigned left[N_ROWS / 2][4], right[4];
#pragma unroll
    for (int r = 0; r < N_ROWS; r += 2) load_left(left[r / 2], a + 8 * r * STEP + k, STEP);
#pragma unroll
    for (int c = 0; c < N_SCORES; c += 4) {
      load_right_of_transpose(right, b + 4 * c * STEP + k, STEP);
      multiply_rows(out, c, left, right);
    }
  }
}

// out += weights x.
__device__ __forceinline__ void add_weighted_quickly(Result& out, const Scores& weights, const STORED* x) {
#pragma unroll
  for (int s = 0; s < N_SCORES; s += 4) {
    unsigned left[N_ROWS / 2][4], right[4];
#pragma unroll
    for (int r = 0; r < N_ROWS; r++) {
      left[r / 2][r % 2] = pack(weights[r][s], weights[r][s + 1]);
      left[r / 2][r % 2 + 2] = pack(weights[r][s + 2], weights[r][s + 3]);
    }
#pragma unroll
    for (int c = 0; c < N_RESULTS; c += 4) {
      load_right(right, x + 4 * s * STEP + 4 * c, STEP);
      multiply_rows(out, c, left, right);
    }
  }
}

// The same number by number. Terms of weight 0 are skipped, so that a weight of 0 hides NaN and inf.
__device__ __forceinline__ void add_weighted_carefully(Result& out, const Scores& weights, const STORED* x) {
  for (int s = 0; s < TILE; s++)
    for (int r = 0; r < N_ROWS; r++) {
      int owner = group_index() * 4 + s % 8 / 2;
      float weight = __shfl_sync(~0u, weights[r][s / 8 * 2 + s % 2], owner);
      if (weight == 0) continue;
      for (int c = 0; c < N_RESULTS; c++) out[r][c] += weight * load(x, s * STEP + column_of(c));
    }
}

template <bool careful>
__device__ __forceinline__ void add_weighted(Result& out, const Scores& weights, const STORED* x) {
  if constexpr (careful)
    add_weighted_carefully(out, weights, x);
  else
    add_weighted_quickly(out, weights, x);
}

// Writes the rows of the warp times a factor to the rows of out from `first` on, of which there are n in all. Returns
// whether all numbers are finite.
__device__ __forceinline__ bool store_result(
    const Result& result, float factor, STORED* out, Index first, Index n, Index step, Index width) {
  bool finite = true;
#pragma unroll
  for (int r = 0; r < N_ROWS; r++)
#pragma unroll
    for (int c = 0; c < N_RESULTS; c += 2) {
      Index row = first + row_of(r);
      float one = result[r][c] * factor, other = result[r][c + 1] * factor;
      if (row >= n || column_of(c) >= width) continue;
      store_pair(out, row * step + column_of(c), one, other);
      finite = finite && isfinite(one) && isfinite(other);
    }
  wait_for_copies();  // if no key is visible, the first tiles have not been used
  return finite;
}

// Scales the scores of a tile, and sets them to -inf where the query may not see the key.
template <bool rows_are_keys>
__device__ __forceinline__ void scale_and_hide(
    const Head& head, Index first_row, Index first_column, float scale, Scores& scores) {
  Index query = rows_are_keys ? first_column : first_row, key = rows_are_keys ? first_row : first_column;
  Index end = key + (rows_are_keys ? WARP_ROWS : TILE);
  bool all = end <= head.keys && !head.mask && (!head.causal || end <= query + 1 + head.keys - head.queries);
#pragma unroll
  for (int r = 0; r < N_ROWS; r++)
#pragma unroll
    for (int c = 0; c < N_SCORES; c++) scores[r][c] *= scale;
  if (all) return;
#pragma unroll
  for (int r = 0; r < N_ROWS; r++)
#pragma unroll
    for (int c = 0; c < N_SCORES; c++) {
      Index row = first_row + row_of(r), column = first_column + column_of(c);
      bool seen = rows_are_keys ? is_visible(head, column, row) : is_visible(head, row, column);
      if (!seen) scores[r][c] = -INFINITY;
    }
}

// Applies dropout to weights or to their gradients.
template <bool rows_are_keys>
__device__ __forceinline__ void drop(const Head& head, Index first_row, Index first_column, Scores& weights) {
  if (head.threshold == 0) return;
#pragma unroll
  for (int r = 0; r < N_ROWS; r++)
#pragma unroll
    for (int c = 0; c < N_SCORES; c++) {
      Index row = first_row + row_of(r), column = first_column + column_of(c);
      weights[r][c] = rows_are_keys ? drop(head, column, row, weights[r][c]) : drop(head, row, column, weights[r][c]);
    }
}

template <bool careful>
__device__ bool attend(
    const Head& head, const Passing& kv, const STORED* q_tile, STORED* out, Index out_row, float* peaks,
    float* totals, Index first_query, float scale) {
  Index first_row = first_query + first_row_of_warp(), end = end_of_keys(head, first_query + ROWS);
  float peak[N_ROWS], total[N_ROWS] = {};  // total: over the columns of this thread
  Result gathered = {};
#pragma unroll
  for (int r = 0; r < N_ROWS; r++) peak[r] = -INFINITY;

  int turn = 0;
  begin_tiles(kv, 0, turn);
  for (Index first_key = 0; first_key < end; first_key += TILE, turn = 1 - turn) {
    take_turn(kv, first_key + TILE, end, turn);
    Scores scores = {};
    add_scores(scores, q_tile + first_row_of_warp() * STEP, x_tile(kv, turn));
    scale_and_hide<false>(head, first_row, first_key, scale, scores);

#pragma unroll
    for (int r = 0; r < N_ROWS; r++) {
      float largest = peak[r], sum = 0;
#pragma unroll
      for (int c = 0; c < N_SCORES; c++) largest = max(largest, scores[r][c]);
      largest = warp_max<4>(largest);
      float shift = largest == -INFINITY ? 0.0f : largest, shrink = exponential(peak[r] - shift);
#pragma unroll
      for (int c = 0; c < N_SCORES; c++) {
        scores[r][c] = exponential(scores[r][c] - shift);
        sum += scores[r][c];
      }
      peak[r] = largest;
      total[r] = total[r] * shrink + sum;
#pragma unroll
      for (int c = 0; c < N_RESULTS; c++) gathered[r][c] *= shrink;
    }
    drop<false>(head, first_row, first_key, scores);
    add_weighted<careful>(gathered, scores, y_tile(kv, turn));
  }

#pragma unroll
  for (int r = 0; r < N_ROWS; r++) {
    Index query = first_row + row_of(r);
    float sum = warp_sum<4>(total[r]);
#pragma unroll
    for (int c = 0; c < N_RESULTS; c++) gathered[r][c] = sum == 0 ? 0.0f : gathered[r][c] / sum;
    if (pair_index() == 0 && query < head.queries) peaks[query] = peak[r], totals[query] = sum;
  }
  return store_result(gathered, 1, out, first_row, head.queries, out_row, head.value_width);
}

// Computes out, the largest score and Σ exp(score - largest) for ROWS queries. (With a causal mask, the queries that see
// most keys come first.)
extern "C" __launch_bounds__(32 * WARPS) __global__ void attention(
    const HEADS(q), const HEADS(k), const HEADS(v), HEADS(out), REAL* peaks, REAL* totals, HEAD_ARGUMENTS) {
  THIS_HEAD;
  Index first_query = Index(gridDim.x - 1 - blockIdx.x) * ROWS;
  STORED* q_tile = shared_memory();
  Rows queries = {q + b * q_batch + h * q_head, T, q_row, K}, keys = {k + b * k_batch + g * k_head, S, k_row, K};
  Rows values = {v + b * v_batch + g * v_head, S, v_row, Kv};
  Passing kv = {keys, values, q_tile + ROWS * STEP};
  begin_tile(queries, first_query, ROWS, q_tile);
  out += b * out_batch + h * out_head;
  peaks += bh * T;
  totals += bh * T;
  if (!__syncthreads_and(attend<false>(head, kv, q_tile, out, out_row, peaks, totals, first_query, scale)))
    attend<true>(head, kv, q_tile, out, out_row, peaks, totals, first_query, scale);
}

// What a query needs to compute its weights again, and their gradients; see prepare_backward.
struct Query {
  float shift, inverse, sum;
};

// Turns a score into the weight, exp(score - shift) inverse, and sets the gradient of a weight of 0 to 0. A query that
// sees no key has an inverse of 0, and weights of 0.
__device__ __forceinline__ void weigh(const Query& of, float& weight, float& dweight) {
  weight = of.inverse == 0 ? 0.0f : exponential(weight - of.shift) * of.inverse;
  if (weight == 0) dweight = 0;
}

// The gradient of a score, given the weight, its gradient, and Σ weight dweight of the query.
__device__ __forceinline__ float dscore_of(float weight, float dweight, float sum) {
  return weight == 0 ? 0.0f : weight * (dweight - sum);
}

// Σ weight dweight of a row of a tile that has all keys, divided by the sum of the weights, which is 1 except for
// rounding: so the gradients of the scores of a query add up to 0.
__device__ __forceinline__ float row_sum_of(const float weights[N_SCORES], const float dweights[N_SCORES]) {
  float sum = 0, sum_of_weights = 0;
#pragma unroll
  for (int c = 0; c < N_SCORES; c++) {
    sum += weights[c] * dweights[c];
    sum_of_weights += weights[c];
  }
  sum = warp_sum<4>(sum);
  sum_of_weights = warp_sum<4>(sum_of_weights);
  return sum_of_weights == 0 ? 0.0f : sum / sum_of_weights;
}

template <bool careful>
__device__ bool attend_backward_q(
    const Head& head, const Passing& kv, const STORED* q_tile, const STORED* dout_tile, const float* shift,
    const float* inverse, float* sums, STORED* dq, Index dq_row, Index first_query, float scale) {
  Index first_row = first_query + first_row_of_warp(), end = end_of_keys(head, first_query + ROWS);
  const STORED *q_rows = q_tile + first_row_of_warp() * STEP, *dout_rows = dout_tile + first_row_of_warp() * STEP;
  Query of[N_ROWS];
#pragma unroll
  for (int r = 0; r < N_ROWS; r++) {
    Index query = first_row + row_of(r);
    of[r] = query < head.queries ? Query{shift[query], inverse[query], sums[query]} : Query{INFINITY, 0, 0};
  }

  Result gathered = {};
  int turn = 0;
  begin_tiles(kv, 0, turn);
  for (Index first_key = 0; first_key < end; first_key += TILE, turn = 1 - turn) {
    take_turn(kv, first_key + TILE, end, turn);
    Scores scores = {}, dweights = {};
    add_scores(scores, q_rows, x_tile(kv, turn));
    add_scores(dweights, dout_rows, y_tile(kv, turn));
    scale_and_hide<false>(head, first_row, first_key, scale, scores);
    drop<false>(head, first_row, first_key, dweights);
#pragma unroll
    for (int r = 0; r < N_ROWS; r++) {
#pragma unroll
      for (int c = 0; c < N_SCORES; c++) weigh(of[r], scores[r][c], dweights[r][c]);
      if (head.keys <= TILE) {  // attention_backward_kv takes this sum, too, in place of Σ dout out
        of[r].sum = row_sum_of(scores[r], dweights[r]);
        Index query = first_row + row_of(r);
        if (pair_index() == 0 && query < head.queries) sums[query] = of[r].sum;
      }
#pragma unroll
      for (int c = 0; c < N_SCORES; c++) dweights[r][c] = dscore_of(scores[r][c], dweights[r][c], of[r].sum);
    }
    add_weighted<careful>(gathered, dweights, x_tile(kv, turn));
  }
  return store_result(gathered, scale, dq, first_row, head.queries, dq_row, head.width);
}

// Computes dq for ROWS queries.
extern "C" __launch_bounds__(32 * WARPS) __global__ void attention_backward_q(
    BACKWARD_ARGUMENTS, HEADS(dq), HEAD_ARGUMENTS) {
  GO_TO_HEAD;
  Index first_query = Index(gridDim.x - 1 - blockIdx.x) * ROWS;
  STORED *q_tile = shared_memory(), *dout_tile = q_tile + ROWS * STEP;
  dq += b * dq_batch + h * dq_head;
  Passing kv = {{k, S, k_row, K}, {v, S, v_row, Kv}, dout_tile + ROWS * STEP};
  begin_tile({q, T, q_row, K}, first_query, ROWS, q_tile);
  begin_tile({dout, T, dout_row, Kv}, first_query, ROWS, dout_tile);
  if (!__syncthreads_and(
          attend_backward_q<false>(head, kv, q_tile, dout_tile, shift, inverse, sums, dq, dq_row, first_query, scale)))
    attend_backward_q<true>(head, kv, q_tile, dout_tile, shift, inverse, sums, dq, dq_row, first_query, scale);
}

// In this function rows are keys, and columns are queries.
template <bool careful>
__device__ bool attend_backward_kv(
    const Head& head, const Passing& queries, const STORED* k_tile, const STORED* v_tile, const float* shift,
    const float* inverse, const float* sums, STORED* dk, Index dk_row, STORED* dv, Index dv_row, Index first_key,
    float scale) {
  Index first_row = first_key + first_row_of_warp(), begin = first_query_of(head, first_key) / TILE * TILE;
  const STORED *k_rows = k_tile + first_row_of_warp() * STEP, *v_rows = v_tile + first_row_of_warp() * STEP;
  Result of_keys = {}, of_values = {};
  int turn = 0;
  begin_tiles(queries, begin, turn);
  for (Index first_query = begin; first_query < head.queries; first_query += TILE, turn = 1 - turn) {
    take_turn(queries, first_query + TILE, head.queries, turn);
    Scores scores = {}, dweights = {};
    add_scores(scores, k_rows, x_tile(queries, turn));
    add_scores(dweights, v_rows, y_tile(queries, turn));
    scale_and_hide<true>(head, first_row, first_query, scale, scores);
    drop<true>(head, first_row, first_query, dweights);
#pragma unroll
    for (int c = 0; c < N_SCORES; c++) {
      Index query = first_query + column_of(c);
      Query of = query < head.queries ? Query{shift[query], inverse[query], sums[query]} : Query{INFINITY, 0, 0};
#pragma unroll
      for (int r = 0; r < N_ROWS; r++) {
        weigh(of, scores[r][c], dweights[r][c]);
        dweights[r][c] = dscore_of(scores[r][c], dweights[r][c], of.sum);
      }
    }
    drop<true>(head, first_row, first_query, scores);
    add_weighted<careful>(of_values, scores, y_tile(queries, turn));
    add_weighted<careful>(of_keys, dweights, x_tile(queries, turn));
  }
  bool finite = store_result(of_keys, scale, dk, first_row, head.keys, dk_row, head.width);
  return store_result(of_values, 1, dv, first_row, head.keys, dv_row, head.value_width) && finite;
}

// Computes dk and dv for ROWS keys.
extern "C" __launch_bounds__(32 * WARPS) __global__ void attention_backward_kv(
    BACKWARD_ARGUMENTS, HEADS(dk), HEADS(dv), HEAD_ARGUMENTS) {
  GO_TO_HEAD;
  Index first_key = Index(blockIdx.x) * ROWS;
  STORED *k_tile = shared_memory(), *v_tile = k_tile + ROWS * STEP;
  dk += b * dk_batch + h * dk_head;
  dv += b * dv_batch + h * dv_head;
  Passing queries = {{q, T, q_row, K}, {dout, T, dout_row, Kv}, v_tile + ROWS * STEP};
  begin_tile({k, S, k_row, K}, first_key, ROWS, k_tile);
  begin_tile({v, S, v_row, Kv}, first_key, ROWS, v_tile);
  if (!__syncthreads_and(attend_backward_kv<false>(
          head, queries, k_tile, v_tile, shift, inverse, sums, dk, dk_row, dv, dv_row, first_key, scale)))
    attend_backward_kv<true>(head, queries, k_tile, v_tile, shift, inverse, sums, dk, dk_row, dv, dv_row, first_key, scale);
}
