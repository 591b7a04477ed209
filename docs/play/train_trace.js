"use strict";
// What one word does in the model: every array and gradient by its name, and where the gradient of a number comes from.
// The local derivatives below are written from the formulas of the forward pass alone, not from the backward functions:
// that both agree, in every number of the figure, is tested.

/** The name of the gradient of an array: "encoder.0.attention.qkv" -> "encoder.0.attention.dqkv". */
function gradient_name(key) {
  return key.replace(/[^.]+$/, "d$&");
}

/** Every array of the word's two passes by name, parameters too. `probe` {key, at, h} adds h to one number on the way. */
function trace(tiny, params, word, settings, probe) {
  if (probe) params = structuredClone(params);
  const [src, tgt] = tiny.batch_of([word], settings.task);
  const seen = {};
  const see = (key, x) => {
    if (probe?.key === key) x.data[probe.at] += probe.h;
    seen[key] = x;
  };
  tiny.for_each_array(see, params);
  const [loss, grads] = tiny.loss_and_grad(params, src, tgt, settings, see);
  tiny.for_each_array((path, g) => { seen[gradient_name(path)] = g; }, grads);
  return { seen, loss, src: [...src.data], tgt: [...tgt.data] };
}

/** What the loss does if only this number changes, and everything after it: (loss(x + h) - loss(x - h)) / 2h. */
function measured_slope(tiny, params, word, settings, key, at, h = 1e-5) {
  const loss = (by) => trace(tiny, params, word, settings, { key, at, h: by }).loss;
  return (loss(h) - loss(-h)) / (2 * h);
}

/**
 * The steps of the forward pass: { out, from: names, partials(i, j) }, the list of [name, row, column, dout/dinput] and
 * of what this factor is: a text, or the name, row and column of a number, and the form in which it is written.
 */
function steps_of({ seen, src, tgt }, settings) {
  const [D, H, N, S, T] = [settings.d_model, settings.n_heads, settings.n_layers, src.length, tgt.length - 1];
  const K = D / H;
  const at = (key, i, j) => seen[key].data[i * seen[key].m + j];
  const upto = (n, f) => Array.from({ length: n }, (_, i) => f(i));
  const steps = [];
  const step = (out, from, partials) => steps.push({ out, from, partials });

  function embed(name, ids) {
    step(`${name}.y`, [name], (i, j) => [[name, ids[i], j, Math.sqrt(D), "√D"]]);
  }

  function linear(out, x, path, form) {
    const [weight, bias] = [`${path}.weight`, `${path}.bias`];
    step(out, [x, weight, bias], (i, j) => [
      ...upto(seen[x].m, (k) => [x, i, k, at(weight, k, j), weight, k, j]),
      ...upto(seen[x].m, (k) => [weight, k, j, at(x, i, k), x, i, k, form]), [bias, 0, j, 1, "1"],
    ]);
  }

  function attend(name, [q, q_at], [k, k_at], [v, v_at], T, S) { // names, and the first columns of q, k and v there
    const [scores, weights, merged] = ["scores", "weights", "merged"].map((x) => `${name}.${x}`);
    const [scale, root] = settings.broken === "scale" ? [1, ""] : [K ** -0.5, " / √K"];
    step(scores, [q, k], (r, s) => {
      const [t, head] = [r % T, Math.floor(r / T) * K];
      return upto(K, (c) => [q, t, q_at + head + c, scale * at(k, s, k_at + head + c), k, s, k_at + head + c, `k[]${root}`])
        .concat(upto(K, (c) => [k, s, k_at + head + c, scale * at(q, t, q_at + head + c), q, t, q_at + head + c, `q[]${root}`]));
    });
    step(weights, [scores], (r, s) => upto(S, (u) => [scores, r, u, at(weights, r, s) * ((u === s) - at(weights, r, u)), "∂weights/∂scores"]));
    step(merged, [weights, v], (i, j) => {
      const flat = i * D + j; // where the number lies, if heads are merged in the wrong order
      const [h, t, c] = settings.broken === "merge"
        ? [Math.floor(flat / (T * K)), Math.floor(flat / K) % T, flat % K] : [Math.floor(j / K), i, j % K];
      return upto(S, (s) => [weights, h * T + t, s, at(v, s, v_at + h * K + c), v, s, v_at + h * K + c])
        .concat(upto(S, (s) => [v, s, v_at + h * K + c, at(weights, h * T + t, s), weights, h * T + t, s]));
    });
    linear(`${name}.y`, merged, `${name}.out`);
  }

  function add_and_norm(name, x, fx) {
    const [sum, y, gain, bias] = [`${name}.sum`, `${name}.y`, `${name}.gain`, `${name}.bias`];
    const terms = settings.broken === "residual" ? [fx] : [x, fx];
    step(sum, terms, (i, j) => terms.map((term) => [term, i, j, 1, "1"]));
    step(y, [sum, gain, bias], (i, j) => {
      const row = upto(D, (k) => at(sum, i, k));
      const mean = row.reduce((total, value) => total + value, 0) / D;
      const rstd = (row.reduce((total, value) => total + (value - mean) ** 2, 0) / D + 1e-5) ** -0.5;
      const x_hat = row.map((value) => (value - mean) * rstd);
      const slope = (k) => at(gain, 0, j) * rstd * ((k === j) - 1 / D - (x_hat[j] * x_hat[k]) / D);
      return [...upto(D, (k) => [sum, i, k, slope(k), "∂y/∂sum"]), [gain, 0, j, x_hat[j], "(sum − mean) / std"], [bias, 0, j, 1, "1"]];
    });
    return y;
  }

  function feed_forward(name, x) {
    const [h, relu] = [`${name}.h`, `${name}.relu`];
    linear(h, x, `${name}.hidden`, "x[]");
    step(relu, [h], (i, j) => [[h, i, j, Number(at(h, i, j) > 0), "relu′(h)"]]);
    linear(`${name}.y`, relu, `${name}.out`);
  }

  function sublayers(layer, x, memory, T) { // of an encoder layer, or of a decoder layer, which has a memory
    const [own, cross, fed] = ["attention", "memory_attention", "feed_forward"].map((name) => `${layer}.${name}`);
    linear(`${own}.qkv`, x, `${own}.qkv`, "x[]");
    attend(own, [`${own}.qkv`, 0], [`${own}.qkv`, D], [`${own}.qkv`, 2 * D], T, T);
    x = add_and_norm(`${own}_norm`, x, `${own}.y`);
    if (memory) {
      linear(`${cross}.q`, x, `${cross}.q`, "x[]");
      linear(`${cross}.kv`, memory, `${cross}.kv`, "memory[]");
      attend(cross, [`${cross}.q`, 0], [`${cross}.kv`, 0], [`${cross}.kv`, D], T, S);
      x = add_and_norm(`${cross}_norm`, x, `${cross}.y`);
    }
    feed_forward(fed, x);
    return add_and_norm(`${fed}_norm`, x, `${fed}.y`);
  }

  embed("source_embedding", src);
  const memory = upto(N, (i) => i).reduce((x, i) => sublayers(`encoder.${i}`, x, null, S), "source_embedding.y");
  embed("target_embedding", tgt);
  const x = upto(N, (i) => i).reduce((x, i) => sublayers(`decoder.${i}`, x, memory, T), "target_embedding.y");
  linear("output.logits", x, "output", "x[]");
  const p = "loss.probabilities";
  step("loss.loss", ["output.logits"], () => upto(T * seen[p].m, (f) => {
    const [t, id] = [Math.floor(f / seen[p].m), f % seen[p].m];
    const is_wanted = id === tgt[t + 1];
    return ["output.logits", t, id, (at(p, t, id) - is_wanted) / T, p, t, id, is_wanted ? `(p[] − 1) / ${T} places` : `p[] / ${T} places`];
  }));
  return steps;
}

/** The terms of dy of a number: each entry that was computed from it, times its local derivative; the largest first.
 * Those with the factor 0 are left out, unless all are such. */
function comes_from(traced, steps, key, i, j) {
  const terms = [];
  for (const { out, from, partials } of steps.filter((step) => step.from.includes(key))) {
    const [y, dy] = [traced.seen[out], traced.seen[gradient_name(out)]];
    for (let at = 0; at < y.data.length; at++) {
      const [row, column] = [Math.floor(at / y.m), at % y.m];
      for (const partial of partials(row, column)) {
        if (partial[0] !== key || partial[1] !== i || partial[2] !== j) continue;
        const [factor, ...what] = partial.slice(3);
        terms.push({ key: out, i: row, j: column, dy: dy.data[at], factor, what, part: dy.data[at] * factor });
      }
    }
  }
  const some = terms.filter((term) => term.factor !== 0);
  return (some.length ? some : terms).sort((a, b) => Math.abs(b.part) - Math.abs(a.part));
}

/** What dy of a number adds to the gradients of what it was computed from; the largest first. */
function goes_to(traced, steps, key, i, j) {
  const [y, dy] = [traced.seen[key], traced.seen[gradient_name(key)]];
  const partials = steps.find((step) => step.out === key)?.partials(i, j) ?? [];
  const d = dy.data[i * y.m + j];
  return partials.map(([name, r, c, factor, ...what]) => ({ key: name, i: r, j: c, dy: d, factor, what, part: d * factor }))
    .sort((a, b) => Math.abs(b.part) - Math.abs(a.part));
}
