"use strict";
// What the figure is made of: the boxes of the architecture, the matrices in them, and what their rows and columns are.

const letter_of = (id) => ["pad", "start", "end"][id] ?? String.fromCharCode(94 + id); // 3 is a

/** The names of the decoder's rows: "a → l" has read a, and is to write l. */
const rows_of = (tgt) => tgt.slice(1).map((id, t) => `${letter_of(tgt[t])} → ${letter_of(id)}`);

/** The boxes, from the first to the last: { id, side, row, title, name, text, shown, views, params }. */
function boxes_of({ src, tgt, seen }, settings) {
  const [D, H, N, S, T] = [settings.d_model, settings.n_heads, settings.n_layers, src.length, tgt.length - 1];
  const numbered = (n) => Array.from({ length: n }, (_, i) => String(i));
  const read = src.map(letter_of);
  const written = rows_of(tgt);
  const vocabulary = numbered(settings.letters + 3).map((id) => letter_of(Number(id)));
  const boxes = [];
  const box = (side, row, id, title, text, shown, views, params = []) => boxes.push({
    id, side, row, title, text, shown,
    views: views.map(([key, name, rows, cols = numbered(seen[key].m), row_range, col_range, gradient]) => (
      { key, name, rows, cols, row_range, col_range, gradient })),
    params: params.flatMap(([path, name, rows]) => (seen[`${path}.weight`] ? [[`${path}.weight`, `W${name}`], [`${path}.bias`, `b${name}`]] : [[path, name]])
      .map(([key, name]) => ({ key, name, rows: seen[key].n === 1 ? [""] : rows ?? numbered(seen[key].n), cols: numbered(seen[key].m) }))),
  });
  const heads = (key, name, rows, cols) => [...Array(H).keys()].map((h) => [key, `head ${h + 1}: ${name}`, rows, cols, [h * rows.length, (h + 1) * rows.length]]);
  const third = (key, name, rows, part) => [key, name, rows, numbered(D), undefined, [part * D, (part + 1) * D]];
  const root = settings.broken === "scale" ? "" : " / √K";

  function embed(side, row, name, letters) {
    const title = side === "encoder" ? "Letters read" : "Letters written";
    const positions = settings.broken === "positions" ? "" : " + position";
    box(side, row, name, title, `√D · table${positions}`, `${name}.y`, [[`${name}.y`, "x", letters]], [[name, "table", vocabulary]]);
  }

  function attend(side, row, id, title, rows, cols, views, params) {
    box(side, row, id, title, `softmax(q kᵀ${root}) v`, `${id}.weights`, [
      ...views, ...heads(`${id}.scores`, `scores = q kᵀ${root}`, rows, cols), ...heads(`${id}.weights`, "weights = softmax(scores)", rows, cols),
      [`${id}.merged`, "merged heads = weights · v", rows], [`${id}.y`, "y", rows],
    ], params.map((name) => [`${id}.${name}`, `_${name}`]));
  }

  function add_and_norm(side, row, id, rows) {
    const [title, text] = settings.broken === "residual" ? ["Norm, nothing added", "LN(f(x))"] : ["Add & norm", "LN(x + f(x))"];
    box(side, row, id, title, text, `${id}.y`, [[`${id}.sum`, settings.broken === "residual" ? "sum = f(x)" : "sum = x + f(x)", rows], [`${id}.y`, "y", rows]],
      [[`${id}.gain`, "gain"], [`${id}.bias`, "bias"]]);
  }

  function feed_forward(side, row, id, rows) {
    box(side, row, id, "Feed-forward", "relu(x W₁ + b₁) W₂ + b₂", `${id}.y`,
      [[`${id}.h`, "h = x W₁ + b₁", rows], [`${id}.relu`, "relu(h)", rows], [`${id}.y`, "y", rows]], [[`${id}.hidden`, "₁"], [`${id}.out`, "₂"]]);
  }

  const own = (id, rows) => ["q", "k", "v"].map((name, part) => third(`${id}.qkv`, name, rows, part));
  let row = 1;
  embed("encoder", row++, "source_embedding", read);
  for (let i = 0; i < N; i++) {
    const id = `encoder.${i}`;
    attend("encoder", row++, `${id}.attention`, "Self-attention", read, read, own(`${id}.attention`, read), ["qkv", "out"]);
    add_and_norm("encoder", row++, `${id}.attention_norm`, read);
    feed_forward("encoder", row++, `${id}.feed_forward`, read);
    add_and_norm("encoder", row++, `${id}.feed_forward_norm`, read);
  }
  row -= 3; // the decoder begins so far down that the memory comes in from the side
  embed("decoder", row++, "target_embedding", written);
  for (let i = 0; i < N; i++) {
    const [id, cross] = [`decoder.${i}`, `decoder.${i}.memory_attention`];
    attend("decoder", row++, `${id}.attention`, settings.broken === "mask" ? "Self-attention, no mask" : "Masked self-attention", written, written,
      own(`${id}.attention`, written), ["qkv", "out"]);
    add_and_norm("decoder", row++, `${id}.attention_norm`, written);
    attend("decoder", row++, cross, "Cross-attention", written, read,
      [[`${cross}.q`, "q", written], third(`${cross}.kv`, "k", read, 0), third(`${cross}.kv`, "v", read, 1)], ["q", "kv", "out"]);
    add_and_norm("decoder", row++, `${cross}_norm`, written);
    feed_forward("decoder", row++, `${id}.feed_forward`, written);
    add_and_norm("decoder", row++, `${id}.feed_forward_norm`, written);
  }
  box("decoder", row++, "output", "Output", "logits = x W + b", "output.logits", [["output.logits", "logits", written, vocabulary]], [["output", ""]]);
  box("decoder", row++, "loss", "Loss", "−log p(wanted letter), the mean of your word", "loss.probabilities", [
    ["loss.probabilities", "p = softmax(logits)", written, vocabulary, undefined, undefined, "output.dlogits"], ["loss.loss", "loss", [""], [""]],
  ]);
  for (const title of new Set(boxes.map((x) => x.title))) { // no two boxes have the same name
    const all = boxes.filter((x) => x.title === title);
    all.forEach((x) => {
      const beside = all.filter(({ side }) => side === x.side);
      if (beside.length > 1) x.title = `${title} ${beside.indexOf(x) + 1}`;
      x.name = x.title + (beside.length < all.length ? ` (${x.side})` : "");
    });
  }
  return boxes;
}

/** The name of the gradient: "head 1: dscores[a, b]" of "head 1: scores[a, b]". */
const slope_of = (text) => text.replace(/^(head \d: )?/, "$1d");

/** The name of a number for people: the box, and the matrix with the row and the column as `form` has it, or "name[]". */
function described(boxes, key, i, j, form) {
  for (const box of boxes) {
    for (const { key: name, name: title, rows, cols, row_range, col_range } of [...box.views, ...box.params]) {
      const [r, c] = [i - (row_range?.[0] ?? 0), j - (col_range?.[0] ?? 0)];
      if (name !== key || r < 0 || r >= rows.length || c < 0 || c >= cols.length) continue;
      const place = [rows[r], cols[c]].filter(Boolean).join(", ");
      return { box, text: (form ?? `${title.split(" = ")[0]}[]`).replace("[]", place && `[${place}]`), where: box.name };
    }
  }
  return { box: null, text: key, where: "" };
}
