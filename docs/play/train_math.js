"use strict";
// The Transformer of docs/one_page_transformer.py, function by function: forward, backward, Adam, decoding.
//
// A building block has the form `[y, backward] = f(params, x)`; `backward(dy)` gives dx and the gradients of params. A
// matrix is { n, m, data }, rows one after the other. A batch lies in the rows: (B, T, D) is a matrix of B·T rows.
// `see(name, x)` is called with every array on the way, and with every gradient (a d before its name): the figure
// looks through it, and training passes none. B, T, S, D, H, K, F, V are the letters of the book.
//
// Everything is in one function, since a worker of a page that was opened as a file can only be made from its text.

function tiny_transformer() {
  const [PAD, BEGIN, END] = [0, 1, 2];
  const nothing = () => {};
  const inside = (see, name) => (see === nothing ? nothing : (key, x) => see(`${name}.${key}`, x));

  // -- matrices: G products of G pairs of blocks, as the heads of attention need them; G = 1 is the usual product -----

  const zeros = (n, m) => ({ n, m, data: new Float64Array(n * m) });

  function filled(n, m, f) {
    const y = zeros(n, m);
    for (let i = 0, at = 0; i < n; i++) for (let j = 0; j < m; j++, at++) y.data[at] = f(i, j);
    return y;
  }

  function map(a, f) { // loops: they are several times as fast as the methods of typed arrays
    const y = zeros(a.n, a.m);
    for (let i = 0; i < y.data.length; i++) y.data[i] = f(a.data[i], i);
    return y;
  }

  const add = (a, b) => map(a, (x, i) => x + b.data[i]);

  function product(a, b, G = 1) { // a b: (G·n, k) (G·k, m) -> (G·n, m)
    const [n, k, m, y] = [(a.n / G) | 0, a.m | 0, b.m | 0, zeros(a.n, b.m)];
    const [A, B, Y] = [a.data, b.data, y.data];
    for (let i = 0; i < a.n; i++) {
      const [first, last] = [i * m, i * m + m];
      for (let l = i * k, row = ((i / n) | 0) * k * m; l < i * k + k; l++) {
        const factor = A[l];
        for (let at = first; at < last; at++) Y[at] += factor * B[row++];
      }
    }
    return y;
  }

  function product_t(a, b, G = 1) { // a bᵀ: (G·n, k) (G·m, k) -> (G·n, m)
    const [n, k, m, y] = [(a.n / G) | 0, a.m | 0, (b.n / G) | 0, zeros(a.n, b.n / G)];
    const [A, B, Y] = [a.data, b.data, y.data];
    for (let i = 0, at = 0; i < a.n; i++) {
      const [first, last] = [i * k, i * k + k];
      for (let j = 0, row = ((i / n) | 0) * m * k; j < m; j++, at++) {
        let sum = 0;
        for (let l = first; l < last; l++) sum += A[l] * B[row++];
        Y[at] = sum;
      }
    }
    return y;
  }

  function t_product(a, b, G = 1) { // aᵀ b: (G·r, n) (G·r, m) -> (G·n, m)
    const [r, n, m, y] = [(a.n / G) | 0, a.m | 0, b.m | 0, zeros(G * a.m, b.m)];
    const [A, B, Y] = [a.data, b.data, y.data];
    for (let i = 0; i < a.n; i++) {
      const [first, last] = [i * m, i * m + m];
      for (let l = i * n, row = ((i / r) | 0) * n * m; l < i * n + n; l++) {
        const factor = A[l];
        for (let at = first; at < last; at++) Y[row++] += factor * B[at];
      }
    }
    return y;
  }

  function columns(a, first, last) {
    return filled(a.n, last - first, (i, j) => a.data[i * a.m + first + j]);
  }

  function side_by_side(parts) {
    const m = parts[0].m;
    return filled(parts[0].n, m * parts.length, (i, j) => parts[Math.floor(j / m)].data[i * m + (j % m)]);
  }

  function sum_of_rows(a) {
    const y = zeros(1, a.m);
    for (let i = 0, at = 0; i < a.n; i++) for (let j = 0; j < a.m; j++, at++) y.data[j] += a.data[at];
    return y;
  }

  // -- building blocks --------------------------------------------------------------------------------------------------

  function linear(params, x) { // x W + b
    const y = map(product(x, params.weight), (value, i) => value + params.bias.data[i % params.bias.m]);
    const backward = (dy) => [product_t(dy, params.weight), { weight: t_product(x, dy), bias: sum_of_rows(dy) }];
    return [y, backward];
  }

  function layer_norm(params, x, see = nothing, eps = 1e-5) { // each row to mean 0 and variance 1, times gain, plus bias
    see("sum", x);
    const [D, gain] = [x.m, params.gain.data];
    const x_hat = zeros(x.n, D);
    const rstd = new Float64Array(x.n);
    for (let i = 0; i < x.n; i++) {
      const [first, last] = [i * D, (i + 1) * D];
      let [mean, variance] = [0, 0];
      for (let j = first; j < last; j++) mean += x.data[j] / D;
      for (let j = first; j < last; j++) variance += (x.data[j] - mean) ** 2 / D;
      rstd[i] = 1 / Math.sqrt(variance + eps);
      for (let j = first; j < last; j++) x_hat.data[j] = (x.data[j] - mean) * rstd[i];
    }
    const y = map(x_hat, (value, i) => value * gain[i % D] + params.bias.data[i % D]);
    see("y", y);

    function backward(dy) {
      see("dy", dy);
      const dx = zeros(x.n, D);
      for (let i = 0; i < x.n; i++) {
        let [mean, slope] = [0, 0];
        for (let j = 0, at = i * D; j < D; j++, at++) {
          mean += dy.data[at] * gain[j] / D;
          slope += dy.data[at] * gain[j] * x_hat.data[at] / D;
        }
        for (let j = 0, at = i * D; j < D; j++, at++) {
          dx.data[at] = rstd[i] * (dy.data[at] * gain[j] - mean - x_hat.data[at] * slope);
        }
      }
      see("dsum", dx);
      return [dx, { gain: sum_of_rows(map(dy, (value, i) => value * x_hat.data[i])), bias: sum_of_rows(dy) }];
    }
    return [y, backward];
  }

  function feed_forward(params, x, see = nothing) { // relu(x W_1 + b_1) W_2 + b_2
    const [h, hidden_backward] = linear(params.hidden, x);
    see("h", h);
    const relu = map(h, (value) => Math.max(value, 0));
    see("relu", relu);
    const [y, out_backward] = linear(params.out, relu);
    see("y", y);

    function backward(dy) {
      see("dy", dy);
      const [drelu, out_grads] = out_backward(dy);
      see("drelu", drelu);
      const dh = map(drelu, (value, i) => (h.data[i] > 0 ? value : 0));
      see("dh", dh);
      const [dx, hidden_grads] = hidden_backward(dh);
      return [dx, { hidden: hidden_grads, out: out_grads }];
    }
    return [y, backward];
  }

  function softmax(x) { // of each row; -Infinity gives 0
    const y = zeros(x.n, x.m);
    for (let i = 0; i < x.n; i++) {
      const [first, last] = [i * x.m, (i + 1) * x.m];
      let [peak, total] = [-Infinity, 0];
      for (let j = first; j < last; j++) peak = Math.max(peak, x.data[j]);
      for (let j = first; j < last; j++) total += y.data[j] = Math.exp(x.data[j] - peak);
      for (let j = first; j < last; j++) y.data[j] /= total;
    }
    return y;
  }

  /** softmax(scale q kᵀ) v: q (B·H·T, K), k and v (B·H·S, K); keep_mask holds B·T·S numbers, 1 = may attend. */
  function attention(q, k, v, keep_mask, B, H, scale, see = nothing) {
    const G = B * H;
    const [T, S] = [q.n / G, k.n / G];
    const scores = map(product_t(q, k, G), (value) => scale * value); // (B·H·T, S)
    see("scores", scores);
    const kept = (i) => keep_mask[Math.floor(i / (H * T * S)) * T * S + (i % (T * S))];
    const weights = softmax(map(scores, (value, i) => (kept(i) ? value : -Infinity)));
    see("weights", weights);

    function backward(dout) {
      const dweights = product_t(dout, v, G);
      see("dweights", dweights);
      const dscores = zeros(weights.n, S);
      for (let i = 0; i < weights.n; i++) {
        let mean = 0;
        for (let j = i * S; j < (i + 1) * S; j++) mean += dweights.data[j] * weights.data[j];
        for (let j = i * S; j < (i + 1) * S; j++) dscores.data[j] = weights.data[j] * (dweights.data[j] - mean);
      }
      see("dscores", dscores);
      const scaled = map(dscores, (value) => scale * value);
      return [product(scaled, k, G), t_product(scaled, q, G), t_product(weights, dout, G)]; // dq, dk, dv
    }
    return [product(weights, v, G), backward];
  }

  function split_heads(x, B, H) { // (B·T, D) -> (B·H·T, K)
    const [T, K, y] = [x.n / B, x.m / H, zeros(x.n * H, x.m / H)];
    for (let i = 0, at = 0; i < y.n; i++) {
      const row = Math.floor(i / (H * T)) * T + (i % T); // b·T + t
      const first = row * x.m + (Math.floor(i / T) % H) * K;
      for (let j = 0; j < K; j++) y.data[at++] = x.data[first + j];
    }
    return y;
  }

  function merge_heads(x, B, H) { // (B·H·T, K) -> (B·T, D)
    const [T, K, y] = [x.n / B / H, x.m, zeros(x.n / H, x.m * H)];
    for (let i = 0, at = 0; i < x.n; i++) {
      const row = Math.floor(i / (H * T)) * T + (i % T);
      const first = row * y.m + (Math.floor(i / T) % H) * K;
      for (let j = 0; j < K; j++) y.data[first + j] = x.data[at++];
    }
    return y;
  }

  /** How heads are merged, and the way back; the wrong way takes the numbers as they lie, head after head. */
  function merge_of(settings, B) {
    const H = settings.n_heads;
    if (settings.broken !== "merge") return [(x) => merge_heads(x, B, H), (dx) => split_heads(dx, B, H)];
    return [({ n, m, data }) => ({ n: n / H, m: m * H, data }), ({ n, m, data }) => ({ n: n * H, m: m / H, data })];
  }

  const scale_of = (settings, D) => (settings.broken === "scale" ? 1 : (D / settings.n_heads) ** -0.5);

  function self_attention(params, x, keep_mask, B, settings, see = nothing) {
    const [D, H, [merge, unmerge]] = [x.m, settings.n_heads, merge_of(settings, B)];
    const [qkv, qkv_backward] = linear(params.qkv, x); // (B·T, 3D)
    see("qkv", qkv);
    const [q, k, v] = [0, 1, 2].map((part) => split_heads(columns(qkv, part * D, (part + 1) * D), B, H));
    const [heads, attention_backward] = attention(q, k, v, keep_mask, B, H, scale_of(settings, D), see);
    const merged = merge(heads);
    see("merged", merged);
    const [y, out_backward] = linear(params.out, merged);
    see("y", y);

    function backward(dy) {
      see("dy", dy);
      const [dmerged, out_grads] = out_backward(dy);
      see("dmerged", dmerged);
      const dqkv = side_by_side(attention_backward(unmerge(dmerged)).map((part) => merge_heads(part, B, H)));
      see("dqkv", dqkv);
      const [dx, qkv_grads] = qkv_backward(dqkv);
      return [dx, { qkv: qkv_grads, out: out_grads }];
    }
    return [y, backward];
  }

  function cross_attention(params, x, memory, keep_mask, B, settings, see = nothing) {
    const [D, H, [merge, unmerge]] = [x.m, settings.n_heads, merge_of(settings, B)];
    const [q, q_backward] = linear(params.q, x);
    see("q", q);
    const [kv, kv_backward] = linear(params.kv, memory); // (B·S, 2D)
    see("kv", kv);
    const [k, v] = [0, 1].map((part) => split_heads(columns(kv, part * D, (part + 1) * D), B, H));
    const scale = scale_of(settings, D);
    const [heads, attention_backward] = attention(split_heads(q, B, H), k, v, keep_mask, B, H, scale, see);
    const merged = merge(heads);
    see("merged", merged);
    const [y, out_backward] = linear(params.out, merged);
    see("y", y);

    function backward(dy) {
      see("dy", dy);
      const [dmerged, out_grads] = out_backward(dy);
      see("dmerged", dmerged);
      const [dq, dk, dv] = attention_backward(unmerge(dmerged)).map((part) => merge_heads(part, B, H));
      see("dq", dq);
      const dkv = side_by_side([dk, dv]);
      see("dkv", dkv);
      const [dx, q_grads] = q_backward(dq);
      const [dmemory, kv_grads] = kv_backward(dkv);
      return [dx, dmemory, { q: q_grads, kv: kv_grads, out: out_grads }];
    }
    return [y, backward];
  }

  // -- layers -----------------------------------------------------------------------------------------------------------

  /** x + f(x), and its gradient dy + df(dy); without the residual connection only the second term. */
  const residual_of = (settings) => (settings.broken === "residual" ? (x, fx) => fx : add);

  function encoder_layer(params, x0, keep_mask, B, settings, see) {
    const sum = residual_of(settings);
    const [attended, attend_backward] = self_attention(params.attention, x0, keep_mask, B, settings, inside(see, "attention"));
    const [x1, norm1_backward] = layer_norm(params.attention_norm, sum(x0, attended), inside(see, "attention_norm"));
    const [fed, feed_backward] = feed_forward(params.feed_forward, x1, inside(see, "feed_forward"));
    const [x2, norm2_backward] = layer_norm(params.feed_forward_norm, sum(x1, fed), inside(see, "feed_forward_norm"));

    function backward(dx2) {
      const grads = {};
      let dsum, dfed, dattended;
      [dsum, grads.feed_forward_norm] = norm2_backward(dx2);
      [dfed, grads.feed_forward] = feed_backward(dsum);
      [dsum, grads.attention_norm] = norm1_backward(sum(dsum, dfed));
      [dattended, grads.attention] = attend_backward(dsum);
      return [sum(dsum, dattended), grads];
    }
    return [x2, backward];
  }

  function decoder_layer(params, x0, memory, keep_mask, memory_keep_mask, B, settings, see) {
    const sum = residual_of(settings);
    const [attended, attend_backward] = self_attention(params.attention, x0, keep_mask, B, settings, inside(see, "attention"));
    const [x1, norm1_backward] = layer_norm(params.attention_norm, sum(x0, attended), inside(see, "attention_norm"));
    const seen = inside(see, "memory_attention");
    const [read, read_backward] = cross_attention(params.memory_attention, x1, memory, memory_keep_mask, B, settings, seen);
    const [x2, norm2_backward] = layer_norm(params.memory_attention_norm, sum(x1, read), inside(see, "memory_attention_norm"));
    const [fed, feed_backward] = feed_forward(params.feed_forward, x2, inside(see, "feed_forward"));
    const [x3, norm3_backward] = layer_norm(params.feed_forward_norm, sum(x2, fed), inside(see, "feed_forward_norm"));

    function backward(dx3) {
      const grads = {};
      let dsum, dfed, dread, dattended, dmemory;
      [dsum, grads.feed_forward_norm] = norm3_backward(dx3);
      [dfed, grads.feed_forward] = feed_backward(dsum);
      [dsum, grads.memory_attention_norm] = norm2_backward(sum(dsum, dfed));
      [dread, dmemory, grads.memory_attention] = read_backward(dsum);
      [dsum, grads.attention_norm] = norm1_backward(sum(dsum, dread));
      [dattended, grads.attention] = attend_backward(dsum);
      return [sum(dsum, dattended), dmemory, grads];
    }
    return [x3, backward];
  }

  // -- the model: ids are matrices (B, T) -------------------------------------------------------------------------------

  function sinusoidal_encoding(length, D) {
    return filled(length, D, (pos, j) => {
      const angle = pos / 10000 ** ((j - (j % 2)) / D);
      return j % 2 ? Math.cos(angle) : Math.sin(angle);
    });
  }

  function embed(table, ids, settings, see = nothing) { // √D · table[id] + position, and zeros for padding
    const [D, scale] = [table.m, table.m ** 0.5];
    const positions = settings.broken === "positions" ? zeros(ids.m, D) : sinusoidal_encoding(ids.m, D);
    const x = filled(ids.n * ids.m, D, (i, j) => {
      const id = ids.data[i];
      return id === PAD ? 0 : scale * table.data[id * D + j] + positions.data[(i % ids.m) * D + j];
    });
    see("y", x);

    function backward(dx) {
      see("dy", dx);
      const dtable = zeros(table.n, D);
      ids.data.forEach((id, i) => { // an id that occurs twice gets the sum
        if (id !== PAD) for (let j = 0; j < D; j++) dtable.data[id * D + j] += scale * dx.data[i * D + j];
      });
      return dtable;
    }
    return [x, backward];
  }

  /** Source ids (B, S) and target ids (B, T) -> the logits of each next target token (B·T, V). */
  function transformer(params, src, tgt_in, settings, see = nothing) {
    const [B, S, T] = [src.n, src.m, tgt_in.m];
    const keep_mask = (n, m, kept) => filled(B * n, m, (i, s) => kept(Math.floor(i / n), i % n, s)).data;
    const is_src = (b, t, s) => src.data[b * S + s] !== PAD;
    const is_past = (b, t, s) => (s <= t || settings.broken === "mask") && tgt_in.data[b * T + s] !== PAD;
    const [encoder, decoder] = [Object.values(params.encoder), Object.values(params.decoder)];
    const [encoder_backwards, decoder_backwards] = [[], []];
    let [memory, embed_src_backward] = embed(params.source_embedding, src, settings, inside(see, "source_embedding"));
    encoder.forEach((layer, i) => {
      [memory, encoder_backwards[i]] = encoder_layer(layer, memory, keep_mask(S, S, is_src), B, settings, inside(see, `encoder.${i}`));
    });
    let [x, embed_tgt_backward] = embed(params.target_embedding, tgt_in, settings, inside(see, "target_embedding"));
    decoder.forEach((layer, i) => {
      const masks = [keep_mask(T, T, is_past), keep_mask(T, S, is_src)];
      [x, decoder_backwards[i]] = decoder_layer(layer, x, memory, ...masks, B, settings, inside(see, `decoder.${i}`));
    });
    const [logits, output_backward] = linear(params.output, x);
    see("output.logits", logits);

    function backward(dlogits) {
      see("output.dlogits", dlogits);
      const grads = { encoder: {}, decoder: {} };
      let [dmemory, dx, dmemory_of_layer] = [zeros(memory.n, memory.m)];
      [dx, grads.output] = output_backward(dlogits);
      for (let i = decoder.length - 1; i >= 0; i--) {
        [dx, dmemory_of_layer, grads.decoder[i]] = decoder_backwards[i](dx);
        if (settings.broken !== "memory") dmemory = add(dmemory, dmemory_of_layer); // every layer reads the same memory
      }
      for (let i = encoder.length - 1; i >= 0; i--) [dmemory, grads.encoder[i]] = encoder_backwards[i](dmemory);
      grads.source_embedding = embed_src_backward(dmemory);
      grads.target_embedding = embed_tgt_backward(dx);
      return grads;
    }
    return [logits, backward];
  }

  function cross_entropy(logits, targets, see = nothing) { // the mean loss per target that is not padding, and dlogits
    const [V, p] = [logits.m, softmax(logits)];
    see("probabilities", p);
    const share = 1 / targets.data.filter((id) => id !== PAD).length;
    const dlogits = zeros(logits.n, V);
    const loss = zeros(1, 1);
    targets.data.forEach((id, i) => {
      if (id === PAD) return;
      const row = logits.data.subarray(i * V, (i + 1) * V);
      const peak = Math.max(...row);
      loss.data[0] += share * (peak + Math.log(row.reduce((sum, x) => sum + Math.exp(x - peak), 0)) - row[id]);
      for (let j = 0; j < V; j++) dlogits.data[i * V + j] = share * (p.data[i * V + j] - (j === id));
    });
    see("loss", loss);
    see("dloss", filled(1, 1, () => 1));
    return [loss.data[0], dlogits];
  }

  /** The decoder reads tgt (B, T+1) without its last token, and predicts it without its first. */
  function loss_and_grad(params, src, tgt, settings, see = nothing) {
    const [tgt_in, tgt_out] = [columns(tgt, 0, tgt.m - 1), columns(tgt, 1, tgt.m)];
    const [logits, backward] = transformer(params, src, tgt_in, settings, see);
    const [loss, dlogits] = cross_entropy(logits, tgt_out, inside(see, "loss"));
    return [loss, backward(dlogits)];
  }

  // -- training and decoding --------------------------------------------------------------------------------------------

  function generator(seed) { // numbers from 0 to 1: mulberry32
    let a = seed >>> 0;
    return () => {
      a = (a + 0x6d2b79f5) >>> 0;
      let t = Math.imul(a ^ (a >>> 15), a | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    };
  }

  function init(random, { letters, d_model: D, n_layers, d_ff: F }) { // Xavier uniform, and variance 1/D for embeddings
    const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    const new_linear = (d_in, d_out, n_maps = 1) => {
      const bound = Math.sqrt(6 / (d_in + d_out));
      return { weight: filled(d_in, n_maps * d_out, () => bound * (2 * random() - 1)), bias: zeros(1, n_maps * d_out) };
    };
    const new_norm = () => ({ gain: filled(1, D, () => 1), bias: zeros(1, D) });
    const maps = {
      attention: () => ({ qkv: new_linear(D, D, 3), out: new_linear(D, D) }),
      memory_attention: () => ({ q: new_linear(D, D), kv: new_linear(D, D, 2), out: new_linear(D, D) }),
      feed_forward: () => ({ hidden: new_linear(D, F), out: new_linear(F, D) }),
    };
    const new_layer = (names) => Object.fromEntries(names.flatMap((name) => [[name, maps[name]()], [`${name}_norm`, new_norm()]]));
    const stack = (names) => Object.fromEntries(Array.from({ length: n_layers }, (_, i) => [i, new_layer(names)]));
    const table = () => filled(letters + 3, D, () => normal() / Math.sqrt(D));
    return {
      source_embedding: table(),
      target_embedding: table(),
      encoder: stack(["attention", "feed_forward"]),
      decoder: stack(["attention", "memory_attention", "feed_forward"]),
      output: new_linear(D, letters + 3),
    };
  }

  /** f(path, array, ...the arrays at the same place of the other trees) for every array of a tree. */
  function for_each_array(f, tree, others = [], path = "") {
    if (tree.data) return void f(path, tree, ...others);
    for (const name of Object.keys(tree)) {
      for_each_array(f, tree[name], others.map((other) => (other[name] ??= {})), path ? `${path}.${name}` : name);
    }
  }

  function adam_step(params, grads, means, step, lr, beta1 = 0.9, beta2 = 0.98, eps = 1e-9) {
    for_each_array((path, { data: g }, { data: x }, mean) => {
      mean.m ??= new Float64Array(g.length);
      mean.v ??= new Float64Array(g.length);
      const { m, v } = mean;
      for (let i = 0; i < g.length; i++) {
        m[i] = beta1 * m[i] + (1 - beta1) * g[i];
        v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
        x[i] -= lr * (m[i] / (1 - beta1 ** step)) / (Math.sqrt(v[i] / (1 - beta2 ** step)) + eps);
      }
    }, grads, [params, means]);
  }

  /** Append the most probable token again and again, until every sentence has its end token: (B, T). */
  function greedy_decode(params, src, settings, max_len) {
    const said = Array.from({ length: src.n }, () => [BEGIN]);
    while (said[0].length <= max_len && !said.every((ids) => ids.includes(END))) {
      const T = said[0].length;
      const [logits] = transformer(params, src, filled(src.n, T, (b, t) => said[b][t]), settings);
      said.forEach((ids, b) => {
        const row = logits.data.subarray(((b + 1) * T - 1) * logits.m, (b + 1) * T * logits.m).slice(PAD + 1);
        ids.push(ids.includes(END) ? PAD : PAD + 1 + row.indexOf(Math.max(...row)));
      });
    }
    return said.map((ids) => ids.slice(1));
  }

  // -- the tasks: words of ids, and where in the source the wanted letters stand ------------------------------------------

  const TASKS = {
    reverse: (word) => word.map((_, t) => word.length - 1 - t),
    copy: (word) => word.map((_, t) => t),
    sort: (word) => word.map((_, t) => t).sort((a, b) => word[a] - word[b] || a - b),
  };

  /** Source (B, L) and target (B, L+2) of words. */
  function batch_of(words, task) {
    const tgt = words.map((word) => [BEGIN, ...TASKS[task](word).map((at) => word[at]), END]);
    return [filled(words.length, words[0].length, (b, t) => words[b][t]), filled(tgt.length, tgt[0].length, (b, t) => tgt[b][t])];
  }

  function random_words(random, size, { letters, length }) {
    const letter = () => END + 1 + Math.floor(letters * random());
    return Array.from({ length: size }, () => Array.from({ length }, letter));
  }

  /** The paper's schedule: up for `warmup` steps, then down with 1/√step. */
  function learning_rate(step, { broken }, peak = 0.01, warmup = 50) {
    return (broken === "rate" ? 100 : 1) * peak * Math.min(step / warmup, Math.sqrt(warmup / step));
  }

  /** The weight of the cross-attention of each head of the last layer where the wanted letter stands, on average. */
  function aligned_share(params, words, settings) {
    let weights;
    const name = `decoder.${settings.n_layers - 1}.memory_attention.weights`;
    const [src, tgt] = batch_of(words, settings.task);
    const see = (key, x) => { if (key === name) weights = x; };
    const [loss] = loss_and_grad(params, src, tgt, settings, see);
    const [H, L] = [settings.n_heads, settings.length];
    const shares = Array.from({ length: H }, (_, h) => words.reduce((sum, word, b) => {
      const places = TASKS[settings.task](word);
      return sum + places.reduce((part, s, t) => part + weights.data[((b * H + h) * (L + 1) + t) * L + s], 0);
    }, 0) / words.length / L);
    return { loss, shares };
  }

  /** What words that were not trained on give: the loss, the aligned share of each head, the share written right. */
  function measure(params, settings, n_words = 50) {
    const words = random_words(generator(12345), n_words, settings);
    const [src, tgt] = batch_of(words, settings.task);
    const said = greedy_decode(params, src, settings, settings.length + 1);
    const is_right = (ids, b) => ids.length === settings.length + 1 && ids.every((id, t) => id === tgt.data[b * tgt.m + t + 1]);
    return { right: said.filter(is_right).length / n_words, ...aligned_share(params, words, settings) };
  }

  return {
    PAD, BEGIN, END, TASKS, zeros, filled, linear, layer_norm, softmax, transformer, loss_and_grad, init, adam_step,
    greedy_decode, generator, batch_of, random_words, learning_rate, measure, for_each_array, sinusoidal_encoding,
  };
}
