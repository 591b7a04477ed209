"use strict";
// The forward pass of npformer's Transformer, and the backward pass of its attention, for one sequence (no batch).
// Functions, arguments and parameters have the names that they have in npformer. A matrix is an array of rows.
// T queries or target length, S keys or source length, D model width, H heads, K = D/H head width, V vocabulary.

/** @typedef {number[][]} Matrix  An array of rows */

const MODELS = {}; // name -> the content of NAME.js

// -- matrices ---------------------------------------------------------------------------------------------------------

/** @returns {Matrix} (n, m), whose entry (i, j) is f(i, j) */
function matrix(n, m, f) {
  return Array.from({ length: n }, (_, i) => Array.from({ length: m }, (_, j) => f(i, j)));
}

/** @param {Matrix} a (n, m) @returns {Matrix} (m, n) */
function transpose(a) {
  return matrix(a.length ? a[0].length : 0, a.length, (i, j) => a[j][i]);
}

/** @param {Matrix} a (n, m) @param {Matrix} b (m, p) @returns {Matrix} (n, p) */
function product(a, b) {
  return a.map((row) => {
    const out = new Array(b[0].length).fill(0);
    row.forEach((factor, k) => {
      const other = b[k];
      for (let j = 0; j < out.length; j++) out[j] += factor * other[j];
    });
    return out;
  });
}

/** @param {Matrix} a (n, m) @param {Matrix} b (n, m) @returns {Matrix} (n, m) */
function add(a, b) {
  return a.map((row, i) => row.map((x, j) => x + b[i][j]));
}

/** Columns first … last - 1. @param {Matrix} a (n, m) @returns {Matrix} (n, last - first) */
function columns(a, first, last) {
  return a.map((row) => row.slice(first, last));
}

// -- operations -------------------------------------------------------------------------------------------------------

/** x W + b. @param {{weight: Matrix, bias: number[]}} params @param {Matrix} x (T, D) @returns {Matrix} (T, D_out) */
function linear(params, x) {
  return product(x, params.weight).map((row) => row.map((y, j) => y + params.bias[j]));
}

/** exp(x_i) / sum_j exp(x_j); a row of -Infinity gives zeros. @param {number[]} x (n) @returns {number[]} (n) */
function softmax(x) {
  const peak = Math.max(...x);
  const e = x.map((value) => Math.exp(value - (peak === -Infinity ? 0 : peak)));
  const total = e.reduce((sum, value) => sum + value, 0);
  return e.map((value) => value / (total === 0 ? 1 : total));
}

/** dx_i = y_i (dy_i - sum_j dy_j y_j). @param {number[]} dy (n) @param {number[]} y (n) @returns {number[]} (n) */
function softmax_backward(dy, y) {
  const mean = dy.reduce((sum, value, i) => sum + value * y[i], 0);
  return y.map((value, i) => value * (dy[i] - mean));
}

/** Rows of mean 0 and variance 1, times gain, plus bias. @param {Matrix} x (T, D) @returns {Matrix} (T, D) */
function layer_norm(params, x, eps = 1e-5) {
  return x.map((row) => {
    const mean = row.reduce((sum, value) => sum + value, 0) / row.length;
    const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / row.length;
    const rstd = 1 / Math.sqrt(variance + eps);
    return row.map((value, j) => (value - mean) * rstd * params.gain[j] + params.bias[j]);
  });
}

/** PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same. @returns {Matrix} (length, D) */
function sinusoidal_encoding(length, d_model) {
  return matrix(length, d_model, (pos, j) => {
    const angle = pos / 10000 ** ((2 * Math.floor(j / 2)) / d_model);
    return j % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

/** keep[t][s] = (s <= t + S - T): True = may attend. @returns {boolean[][]} (T, S) */
function causal_mask(T, S = T) {
  return matrix(T, S, (t, s) => s <= t + S - T);
}

/** All true. @returns {boolean[][]} (T, S) */
function no_mask(T, S) {
  return matrix(T, S, () => true);
}

/** Each query may attend to the same keys. @param {boolean[]} keep (S) @returns {boolean[][]} (T, S) */
function key_mask(T, keep) {
  return matrix(T, keep.length, (_, s) => keep[s]);
}

/**
 * softmax(scale · q kᵀ) v.
 * @param {Matrix} q (T, K)
 * @param {Matrix} k (S, K)
 * @param {Matrix} v (S, Kv)
 * @param {boolean[][]} keep_mask (T, S), true = may attend
 * @param {number} [scale] 1/√K if not given
 * @returns {{scores: Matrix, weights: Matrix, out: Matrix}} scores (T, S) before the mask, weights (T, S), out (T, Kv)
 */
function attention(q, k, v, keep_mask, scale = 1 / Math.sqrt(q[0].length)) {
  const scores = product(q, transpose(k)).map((row) => row.map((score) => scale * score));
  const masked = scores.map((row, t) => row.map((score, s) => (keep_mask[t][s] ? score : -Infinity)));
  const weights = masked.map(softmax);
  return { scores, weights, out: product(weights, v) };
}

/**
 * The gradients of a loss, given its gradient with respect to the output.
 * @param {Matrix} dout (T, Kv)
 * @param {Matrix} q (T, K)
 * @param {Matrix} k (S, K)
 * @param {Matrix} v (S, Kv)
 * @param {Matrix} weights (T, S), of the forward pass
 * @param {number} [scale] as in the forward pass
 * @returns {{dweights: Matrix, dscores: Matrix, dq: Matrix, dk: Matrix, dv: Matrix}}
 */
function attention_backward(dout, q, k, v, weights, scale = 1 / Math.sqrt(q[0].length)) {
  // out = weights v
  const dv = product(transpose(weights), dout);
  const dweights = product(dout, transpose(v));
  // weights = softmax(scores): a masked key has weight 0, and its score gets the gradient 0
  const dscores = dweights.map((row, t) => softmax_backward(row, weights[t]));
  // scores = scale q kᵀ
  const times_scale = (x) => x.map((row) => row.map((value) => scale * value));
  const dq = times_scale(product(dscores, k));
  const dk = times_scale(product(transpose(dscores), q));
  return { dweights, dscores, dq, dk, dv };
}

// -- layers: every function also returns what it has computed on the way ----------------------------------------------

/** Divide the width into heads: (T, D) -> H matrices (T, K). @param {Matrix} x @returns {Matrix[]} */
function split_heads(x, n_heads) {
  const K = x[0].length / n_heads;
  return Array.from({ length: n_heads }, (_, h) => columns(x, h * K, (h + 1) * K));
}

/** H matrices (T, K) side by side: (T, D). @param {Matrix[]} heads @returns {Matrix} */
function merge_heads(heads) {
  return heads[0].map((_, t) => heads.flatMap((head) => head[t]));
}

/** Attention of each head. @returns {{heads: object[], merged: Matrix}} merged (T, D) */
function attend(q, k, v, keep_mask, n_heads) {
  const parts = [q, k, v].map((x) => split_heads(x, n_heads));
  const heads = parts[0].map((_, h) => {
    const [q, k, v] = parts.map((part) => part[h]);
    return { q, k, v, keep_mask, ...attention(q, k, v, keep_mask) };
  });
  return { heads, merged: merge_heads(heads.map((head) => head.out)) };
}

/** @param {Matrix} x (T, D) @returns {{heads: object[], merged: Matrix}} before the output projection */
function self_attention(params, x, keep_mask, n_heads) {
  const D = x[0].length;
  const qkv = linear(params.qkv, x); // (T, 3D)
  return attend(columns(qkv, 0, D), columns(qkv, D, 2 * D), columns(qkv, 2 * D, 3 * D), keep_mask, n_heads);
}

/** Queries of x (T, D), keys and values of memory (S, D). @returns {{heads: object[], merged: Matrix}} */
function cross_attention(params, x, memory, keep_mask, n_heads) {
  const D = x[0].length;
  const kv = linear(params.kv, memory); // (S, 2D)
  return attend(linear(params.q, x), columns(kv, 0, D), columns(kv, D, 2 * D), keep_mask, n_heads);
}

/** relu(x W_1 + b_1) W_2 + b_2. @param {Matrix} x (T, D) @returns {{hidden: Matrix, out: Matrix}} (T, F) and (T, D) */
function feed_forward(params, x) {
  const hidden = linear(params.hidden, x).map((row) => row.map((value) => Math.max(value, 0)));
  return { hidden, out: linear(params.out, hidden) };
}

/** x + out; in the last row x alone, if what is added there is left out. @param {Matrix} x (T, D) @param {Matrix} out (T, D) */
function add_out(x, out, is_left_out) {
  return add(x, is_left_out ? [...out.slice(0, -1), out.at(-1).map(() => 0)] : out);
}

/** The output projection of the merged heads, added to the input of the sublayer. @param {Matrix} x (T, D) */
function add_heads(params, x, { heads, merged }, is_left_out = false) {
  const out = linear(params.out, merged);
  return { heads, merged, out, x: add_out(x, out, is_left_out) };
}

/**
 * Self-attention, then feed-forward, each as x + sublayer(layer_norm(x)).
 * @param {Matrix} x0 (S, D)
 * @param {string} [left_out] the sublayer that adds nothing
 */
function encoder_layer(params, x0, keep_mask, n_heads, left_out) {
  const heads = self_attention(params.attention, layer_norm(params.attention_norm, x0), keep_mask, n_heads);
  const attention = add_heads(params.attention, x0, heads);
  if (left_out === "attention") attention.x = x0;
  const { hidden, out } = feed_forward(params.feed_forward, layer_norm(params.feed_forward_norm, attention.x));
  return { x: left_out === "feed_forward" ? attention.x : add(attention.x, out), attention, hidden };
}

/**
 * Causal self-attention, cross-attention, feed-forward.
 * @param {Matrix} x0 (T, D)
 * @param {Matrix} memory (S, D)
 * @param {boolean[]} keep (S), true = may be attended to
 * @param {string} [left_out] the sublayer that adds nothing to the last token
 */
function decoder_layer(params, x0, memory, keep, n_heads, left_out) {
  const T = x0.length;
  const own = self_attention(params.attention, layer_norm(params.attention_norm, x0), causal_mask(T), n_heads);
  const attention = add_heads(params.attention, x0, own, left_out === "attention");
  const h = layer_norm(params.memory_attention_norm, attention.x);
  const other = cross_attention(params.memory_attention, h, memory, key_mask(T, keep), n_heads);
  const memory_attention = add_heads(params.memory_attention, attention.x, other, left_out === "memory_attention");
  const { hidden, out } = feed_forward(params.feed_forward, layer_norm(params.feed_forward_norm, memory_attention.x));
  return { x: add_out(memory_attention.x, out, left_out === "feed_forward"), attention, memory_attention, hidden };
}

// -- the model --------------------------------------------------------------------------------------------------------

/** √D · table[id] + position. @param {number[]} ids (T) @param {Matrix} table (V, D) */
function embed_tokens(ids, table) {
  const D = table[0].length;
  const embedding = ids.map((id) => table[id].map((value) => value * Math.sqrt(D)));
  const positions = sinusoidal_encoding(ids.length, D);
  return { embedding, positions, x: add(embedding, positions) };
}

/** The layers of a stack: its parameters "0", "1", … */
function layers_of(stack) {
  return Object.keys(stack).filter((name) => /^\d+$/.test(name)).sort((a, b) => a - b).map((name) => stack[name]);
}

class Transformer {
  /** @param {object} content of NAME.js */
  constructor(content) {
    Object.assign(this, content.model); // d_model, n_heads, n_layers, d_ff, …
    this.params = {};
    for (const [path, array] of Object.entries(content.params)) {
      const names = path.split(".").slice(1); // after "params."
      const last = names.pop();
      names.reduce((params, name) => (params[name] ??= {}), this.params)[last] = from_float16(array);
    }
    const { embedding, source_embedding, target_embedding, output } = this.params;
    this.source_table = embedding ?? source_embedding; // (V, D)
    this.target_table = embedding ?? target_embedding;
    this.is_tied = !output.weight; // the table of embeddings is the output matrix, too
    this.output = { weight: output.weight ?? transpose(embedding), bias: output.bias }; // (D, V)
  }

  /**
   * @param {number[]} src (S)
   * @param {boolean[]} keep (S), false = hidden, as padding is
   * @param {{layer: number, name: string}} [left_out] the sublayer that adds nothing
   * @returns {{embedded: object, layers: object[], memory: Matrix}} memory (S, D)
   */
  encode(src, keep = src.map(() => true), left_out = {}) {
    const embedded = embed_tokens(src, this.source_table);
    let x = embedded.x;
    const layers = layers_of(this.params.encoder).map((params, i) => {
      const name = i === left_out.layer ? left_out.name : undefined;
      const layer = encoder_layer(params, x, key_mask(src.length, keep), this.n_heads, name);
      x = layer.x;
      return layer;
    });
    return { embedded, layers, memory: layer_norm(this.params.encoder.norm, x) };
  }

  /**
   * @param {Matrix} memory (S, D)
   * @param {number[]} tgt_in (T)
   * @param {boolean[]} keep (S), as for encode
   * @param {{layer: number, name: string}} [left_out] the sublayer that adds nothing to the last token
   * @returns {{embedded: object, layers: object[], x: Matrix}} x (T, D), for logits
   */
  decode(memory, tgt_in, keep = memory.map(() => true), left_out = {}) {
    const embedded = embed_tokens(tgt_in, this.target_table);
    let x = embedded.x;
    const layers = layers_of(this.params.decoder).map((params, i) => {
      const layer = decoder_layer(params, x, memory, keep, this.n_heads, i === left_out.layer ? left_out.name : undefined);
      x = layer.x;
      return layer;
    });
    return { embedded, layers, x };
  }

  /**
   * The same model with some heads left out: their part of the concatenation (merged) is zero.
   * Then it does not matter what stands in the rows of the output projection that this part is multiplied by. Here it is
   * these rows that are zero, which gives the same sums.
   * @param {{stack: string, layer: number, name: string, head: number}[]} heads  name: "attention" or "memory_attention"
   */
  without_heads(heads) {
    const other = Object.assign(Object.create(Transformer.prototype), this);
    other.params = { ...this.params };
    const K = this.d_model / this.n_heads;
    for (const { stack, layer, name, head } of heads) {
      const params = other.params[stack][layer];
      const { out } = params[name];
      const is_of_head = (row) => Math.floor(row / K) === head;
      const weight = out.weight.map((numbers, row) => (is_of_head(row) ? numbers.map(() => 0) : numbers));
      const changed = { ...params, [name]: { ...params[name], out: { ...out, weight } } };
      other.params[stack] = { ...other.params[stack], [layer]: changed };
    }
    return other;
  }

  /** The last layer norm. @param {Matrix} x (T, D) @returns {Matrix} (T, D) */
  normed(x) {
    return layer_norm(this.params.decoder.norm, x);
  }

  /** Of the last layer's output, or of an earlier one's, as if the decoder ended there. @returns {Matrix} (T, V) */
  logits(x) {
    return linear(this.output, this.normed(x));
  }
}

/** The number of every 16 bits. */
const FLOAT16 = Array.from({ length: 2 ** 16 }, (_, bits) => {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
});

/** The numbers of an array of NAME.js, which are stored with 16 bits. @returns {number[] | Matrix} */
function from_float16({ shape, float16 }) {
  const bytes = atob(float16);
  const numbers = new Array(bytes.length / 2);
  for (let i = 0; i < numbers.length; i++) {
    numbers[i] = FLOAT16[bytes.charCodeAt(2 * i) + 256 * bytes.charCodeAt(2 * i + 1)];
  }
  if (shape.length === 1) return numbers;
  return Array.from({ length: shape[0] }, (_, i) => numbers.slice(i * shape[1], (i + 1) * shape[1]));
}
