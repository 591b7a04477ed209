"use strict";
// The second half of the page: a drawing of the model, whose boxes are buttons, and what the chosen box computes.

const ATTENTIONS = {
  encoder: {
    title: "Self-attention", of: "Encoder", queries: "the source tokens", keys: "the source tokens",
    text: "each source token attends to all source tokens",
  },
  decoder: {
    title: "Causal self-attention", of: "Decoder", queries: "the steps", keys: "the target tokens read",
    text: "each target token attends to itself and to the tokens before it",
  },
  memory: {
    title: "Cross-attention", of: "Decoder", queries: "the steps", keys: "the source tokens",
    text: "each target token attends to the outputs of the encoder",
  },
};
const shape = (x) => `(${x.length}, ${x[0].length})`;

/** The boxes of the encoder (source) and of the decoder (target). @returns {{kind, side, layer, title, row}[]} */
function boxes() {
  const layers = Array.from({ length: chosen(state.name).model.n_layers }, (_, layer) => layer);
  const ends = [{ kind: "tokens", title: "Tokens" }, { kind: "embedding", title: "Embedding + position" }];
  const attention = (kind, layer) => ({ kind, layer, title: ATTENTIONS[kind].title });
  const feed_forward = (layer) => ({ kind: "feed_forward", layer, title: "Feed-forward" });
  const stack = {
    source: [...ends, ...layers.flatMap((i) => [attention("encoder", i), feed_forward(i)]),
      { kind: "encoded", title: "Outputs of the encoder" }],
    target: [...ends, ...layers.flatMap((i) => [attention("decoder", i), attention("memory", i), feed_forward(i)]),
      { kind: "output", title: "Norm, linear, softmax" }],
  };
  return Object.entries(stack).flatMap(([side, list]) => list.map((box, i) => ({ ...box, side, row: i + 2 })));
}

const key_of = ({ kind, side, layer = 0 }) => `part-${kind}-${side}-${layer}`;

/** The row that is framed in the pictures of a side. */
function framed(traced, side) {
  if (side === "source" && state.row !== undefined) return state.row;
  const best = largest_first(mean_of(traced.heads.memory.at(-1))[state.step])[0];
  return side === "source" ? best : state.step;
}

/** The names of the rows of a side. */
const rows_of = (side) => (side === "source" ? state.src.map(token) : step_names());

/** What the decoder would write if it ended after x. @param {Matrix} x (T, D) */
function ended(x, n = 3) {
  const shares = shares_at(chosen(state.name).model.logits([x[state.step]])[0]);
  return told_shares(shares.map((_, id) => id), shares, n);
}

/** The vectors after each box of the decoder, first to last. @returns {[string, Matrix][]} key of the box, (T, D) */
function additions({ decoded }) {
  const box = (kind, layer) => key_of({ kind, side: "target", layer });
  return [[box("embedding", 0), decoded.embedded.x], ...decoded.layers.flatMap(({ attention, memory_attention, x }, layer) => [
    [box("decoder", layer), attention.x], [box("memory", layer), memory_attention.x], [box("feed_forward", layer), x]])];
}

/** The token whose probability is followed through the boxes: the one that follows the selected step. */
const followed = () => state.tgt_in[state.step + 1] ?? state.best[state.step];

/**
 * What the decoder would write if it ended at a box.
 * @returns {{best: number, before: number?, shares: number[], shares_before: number[]?, x: Matrix} | undefined} tokens, after
 * the box and after the one before it; undefined for a box that adds nothing to the vectors of the decoder
 */
function effect_of(box, traced) {
  const list = additions(traced);
  const i = list.findIndex(([key]) => key === key_of(box));
  if (i < 0) return undefined;
  const shares_after = ([, x]) => shares_at(chosen(state.name).model.logits([x[state.step]])[0]);
  const [shares, shares_before] = [shares_after(list[i]), i ? shares_after(list[i - 1]) : undefined];
  return { shares, shares_before, best: greedy(shares), before: shares_before && greedy(shares_before), x: list[i][1] };
}

/** What would be written after a box, in a few words, and the probability of the token that follows as a bar. */
function small_effect({ best, before, shares }) {
  const how = before === undefined ? "would write" : best === before ? "still" : "now";
  const [name, share] = [told(best), number(shares[best], 2)];
  const bar = element("i", { class: "share", style: `width: ${(100 * shares[followed()]).toFixed(1)}%` });
  return element("small", { class: "effect" }, element(how === "now" ? "mark" : "span", {}, `${how} ${name} ${share}`), bar);
}

const SUBLAYERS = { encoder: "attention", decoder: "attention", memory: "memory_attention", feed_forward: "feed_forward" };

/**
 * The probabilities at the selected step if a box added nothing: one of the decoder to the vector of this step, one of the
 * encoder to the vectors of all source tokens.
 * @returns {number[]} (V)
 */
function shares_without({ kind, side, layer }, { encoded }) {
  const { model } = chosen(state.name);
  const keep = state.src.map((_, s) => !state.hidden.includes(s));
  const left_out = { layer, name: SUBLAYERS[kind] };
  const memory = side === "source" ? model.encode(state.src, keep, left_out).memory : encoded.memory;
  const { x } = model.decode(memory, state.tgt_in.slice(0, state.step + 1), keep, side === "source" ? {} : left_out);
  return shares_at(model.logits([x.at(-1)])[0]);
}

/** Which boxes the selected step needs for its most probable token: those without which its probability falls most. */
function told_turn(traced) {
  const id = state.best[state.step];
  const share = shares_at(traced.decoded.logits[state.step])[id];
  const list = boxes().filter(({ kind, side }) => side === "target" && SUBLAYERS[kind]).map((box) => (
    { name: `the ${box.title.toLowerCase()} of layer ${box.layer + 1}`, left: shares_without(box, traced)[id] }
  )).sort((a, b) => a.left - b.left);
  const most = share - list[0].left;
  if (most < share / 4) {
    return `No box alone decides on ${told(id)}: without what ${list[0].name} adds, it would have ${number(list[0].left, 2)} ` +
      `instead of ${number(share, 2)}, and without any other box at least as much.`;
  }
  const needed = list.filter(({ left }) => 2 * (share - left) > most); // the others lower it at most half as much
  if (needed.length === 1) {
    return `Without what ${list[0].name} adds, ${told(id)} would have ${number(list[0].left, 2)} instead of ${number(share, 2)}.`;
  }
  const each = needed.map(({ name, left }) => `${number(left, 2)} without ${name}`);
  return `Several boxes are needed for ${told(id)}: instead of ${number(share, 2)} it would have ${each.slice(0, -1).join(", ")}` +
    ` or ${each.at(-1)}.`;
}

/** What a box is needed for, in a sentence. */
function told_without_box(box, traced) {
  const id = state.best[state.step];
  const shares = shares_without(box, traced);
  const other = greedy(shares);
  return `Without this box${box.side === "source" ? ", for all source tokens" : ""}: ${told(id)} ${number(shares[id], 2)} instead of ` +
    `${number(shares_at(traced.decoded.logits[state.step])[id], 2)}` +
    `${other === id ? "" : `; the most probable would be ${told(other)} ${number(shares[other], 2)}`}. `;
}

/** What a box of the decoder changes, in sentences. */
function told_effect({ before, shares, shares_before, x }) {
  const id = followed();
  const which = origin(state.step) === "reader" ? ", which you chose," : has_written(state.step) ? ", which follows," : "";
  return `If the decoder ended here, it would write ${ended(x)}. ` + (before === undefined ? ""
    : `One box earlier: ${told(before)} ${number(shares_before[before], 2)}. The probability of ${told(id)}${which} ` +
      `${Math.abs(shares[id] - shares_before[id]) < 5e-4 ? `stays ${number(shares[id], 3)}`
        : `${shares[id] > shares_before[id] ? "rises" : "falls"} from ${number(shares_before[id], 3)} to ${number(shares[id], 3)}`}.`);
}

/** What a box shows below its title. @returns {(Node|string)[]} */
function content_of(box, traced) {
  const { kind, side, layer } = box;
  const effect = effect_of(box, traced);
  if (ATTENTIONS[kind]) {
    const picture = small_map(mean_of(traced.heads[kind][layer]), framed(traced, side));
    return [element("small", {}, `layer ${layer + 1}`), picture, effect ? small_effect(effect) : ""];
  }
  const ids = side === "source" ? state.src : read_tokens();
  const small = {
    tokens: () => `${ids.length} of the ${side === "source" ? "source" : "target so far"}`,
    embedding: () => "a row of a table",
    feed_forward: () => `layer ${layer + 1}`,
    encoded: () => `${ids.length} vectors`,
    output: () => (!has_written(state.step) ? "the next token is not written yet"
      : `${origin(state.step) === "reader" ? "you chose" : "wrote"} ${told_written(state.step)}` +
        `${state.tgt_in[state.step + 1] === EOS ? "" : ", which is read next"}`),
  };
  return [element("small", {}, small[kind]()), effect ? small_effect(effect) : ""];
}

function show_parts(traced) {
  const nodes = boxes().map((box) => {
    const is_layer = box.kind === "feed_forward" || ATTENTIONS[box.kind];
    const attributes = {
      id: key_of(box), class: `box ${box.side} ${is_layer ? "adds" : ""}`, style: `grid-row: ${box.row}`,
      "aria-pressed": String(key_of(box) === key_of(state)),
    };
    return pressable(() => choose_part(box, traced), attributes, element("b", {}, box.title), ...content_of(box, traced));
  });
  const row = (kind, side) => boxes().filter((box) => box.kind === kind && box.side === side).map((box) => box.row);
  const arrows = row("memory", "target");
  const last = row("encoded", "source")[0];
  $("diagram").replaceChildren(
    element("h3", { class: "source" }, "Encoder"), element("h3", { class: "target" }, "Decoder"),
    element("i", { class: "stream source", style: `grid-row: 4 / ${last}` }),
    element("i", { class: "stream target", style: `grid-row: 4 / ${row("output", "target")[0]}` }), ...nodes,
    element("i", { class: "bus", style: `grid-row: ${Math.min(last, ...arrows)} / ${Math.max(last, ...arrows) + 1}` }),
    ...arrows.map((at) => element("i", { class: "arrow", style: `grid-row: ${at}` })),
    element("i", { class: "stub", style: `grid-row: ${last}` }),
  );
  $("ending").textContent = "Lower line of a box of the decoder: what it would write for the selected step if it ended there, " +
    "that is if the last layer norm and the output matrix came after this box. Marked: another token is now the most probable; " +
    "whether the box is needed for it stands in its panel. " +
    `Bar: the probability of ${told(followed())} there.`;
  $("turn").textContent = told_turn(traced);
  show_part(traced);
}

function choose_part({ kind, side, layer = 0 }, traced) {
  $("diagram").querySelector('[aria-pressed="true"]').setAttribute("aria-pressed", "false");
  Object.assign(state, { kind, side, layer, key: undefined });
  $(key_of(state)).setAttribute("aria-pressed", "true");
  show_part(traced);
  const is_below = $("part").getBoundingClientRect().top >= $("diagram").getBoundingClientRect().bottom;
  if (is_below) $("part").scrollIntoView(); // on a narrow screen
}

/** The chosen box. */
function show_part(traced) {
  const { kind, side, layer } = state;
  const ids = side === "source" ? state.src : read_tokens();
  const stack = side === "source" ? traced.encoded : traced.decoded;
  const of = side === "source" ? "Encoder" : "Decoder";
  const { model } = chosen(state.name);
  const { d_model, d_ff } = model;
  const size = { width: d_model > 32 ? 8 : 11, height: 16 };
  const options = { rows: rows_of(side), signed: true, chosen: framed(traced, side), ...size };
  $("heads").replaceChildren();
  const effect = effect_of(state, traced);
  $("part-effect").textContent = (SUBLAYERS[kind] ? told_without_box(state, traced) : "") + (effect ? told_effect(effect) : "");
  if (ATTENTIONS[kind]) show_attention(traced);
  else if (kind === "tokens") {
    const what = side === "source" ? "The text is cut into tokens." : "The decoder reads the tokens that are written so far.";
    say_part(`${of}: tokens`, `${what} The model knows a token by its number, which is its row in the table of ` +
      `embeddings: ${ids.map((id) => `${told(id)} ${id}`).join(", ")}.${model.is_tied ? ` ${SHARED}` : ""}`);
    show_maps();
  } else if (kind === "embedding") {
    const { embedding, positions, x } = stack.embedded;
    const is_itself = model.is_tied && side === "target" && greedy(model.logits([x[state.step]])[0]) === ids[state.step];
    say_part(`${of}: embedding and position`, "The row of each token in the table of embeddings, times √D, plus the " +
      `encoding of its position.${is_itself ? " The output matrix is the same " +
      "table, and the vector is still most like its own row: so this is the token that was read last." : ""}`);
    show_maps(
      heat_map({ title: "embedding", text: `√D · table[id] ${shape(x)}; rows: tokens`, values: embedding, ...options }),
      heat_map({ title: "position", text: `sines and cosines of the position ${shape(x)}`, values: positions, ...options }),
      heat_map({ title: "sum", text: `the input of layer 1 ${shape(x)}`, values: x, ...options }),
    );
  } else if (kind === "feed_forward") {
    const { x, hidden } = stack.layers[layer];
    const peak = peak_of(hidden);
    say_part(`${of}, layer ${layer + 1}: feed-forward`, `For each token separately: relu(x W₁ + b₁) W₂ + b₂, from width D = ` +
      `${d_model} to F = ${d_ff} and back. Added to its input, this is the output of the layer.`);
    show_maps(
      heat_map({
        title: "hidden", text: `relu(x W₁ + b₁) ${shape(hidden)}`, values: hidden, ...options, signed: false,
        width: d_ff > 64 ? 2 : 6, opacity: (value) => value / peak, scale: `blank: 0; full colour: ${number(peak, 2)}`,
      }),
      heat_map({ title: "output of the layer", text: `${shape(x)}; rows: tokens`, values: x, ...options }));
  } else if (kind === "output") {
    show_output(traced, { signed: true, ...size });
  } else {
    const { memory } = traced.encoded;
    say_part("Outputs of the encoder", "The outputs of its last layer after one more layer norm: one vector for each source " +
      "token. Every cross-attention computes its keys and values from them.");
    show_maps(heat_map({ title: "outputs", text: `${shape(memory)}; rows: source tokens`, values: memory, ...options }));
  }
}

/** From the last vector of the selected step to its logits. */
function show_output({ decoded }, size) {
  const { model } = chosen(state.name);
  const [vector] = model.normed([decoded.x[state.step]]);
  const logits = decoded.logits[state.step];
  const best = largest_first(logits).slice(0, N_SHOWN);
  const columns = best.map((id) => model.output.weight.map((row) => row[id]));
  const bias = model.output.bias[best[0]];
  const rows = best.map(token);
  say_part("Decoder: norm, linear, softmax", "The vector of the selected step goes through a last layer norm. Its product " +
    `with the output matrix, plus a bias, is one logit for each of the ${logits.length} tokens` +
    `${model.is_tied ? " (the matrix is the table of embeddings, transposed)" : ""}. For ${told(best[0])} it is the sum of ` +
    `${vector.length} products, ${number(logits[best[0]] - bias, 3)}, plus ${number(bias, 3)}: ${number(logits[best[0]], 3)}. ` +
    "Softmax makes probabilities of the logits: this is the table further up.");
  show_maps(
    heat_map({ title: "vector", text: `after the norm ${shape([vector])}`, values: [vector], rows: ["vector"], ...size }),
    heat_map({
      title: "columns of the output matrix", text: "for the most probable tokens", values: columns, rows, ...size,
    }),
    heat_map({
      title: "products", text: "vector · column, number by number; a row, summed, is a logit without its bias",
      values: columns.map((column) => column.map((value, d) => value * vector[d])), rows, ...size,
    }),
  );
}

function say_part(title, text) {
  $("part-title").textContent = title;
  $("part-text").textContent = text;
}

function show_maps(...figures) {
  $("head").replaceChildren(element("div", { class: "maps" }, ...figures));
}

function show_attention(traced) {
  const { kind, layer, side } = state;
  const { title, of, text, queries, keys } = ATTENTIONS[kind];
  const heads = traced.heads[kind][layer];
  const row = framed(traced, side);
  const answers = names_of(kind)[1];
  const mean = mean_of(heads)[row];
  const who = kind !== "encoder" ? "The selected step" : state.row === undefined
    ? `The source token at which the selected step looks most, ${told_source(row)},` : `The source token ${told_source(row)}`;
  const looks = Math.max(...mean) ? `${who} attends, in the mean of the heads, to ${told_shares(answers, mean, 2)}.`
    : "All source tokens are hidden: all weights are 0.";
  say_part(`${of}, layer ${layer + 1}: ${title.toLowerCase()}`, `Here ${text}, in ${heads.length} heads, each with ` +
    `matrices of its own. Rows: queries, ${queries}; columns: keys, ${keys}. ${looks} Weights show what a head reads, not ` +
    "what it is used for.");
  $("heads").style.setProperty("--heads", heads.length);
  $("heads").replaceChildren(...heads.map(({ weights }, h) => {
    const button = pressable(() => {
      $("heads").querySelector('[aria-pressed="true"]').setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", "true");
      state.head = h;
      show_head(traced);
    }, { "aria-pressed": String(h === state.head) }, small_map(weights, row), `head ${h + 1}`);
    return button;
  }));
  show_head(traced);
}

/** The ids of the queries and of the keys. */
function names_of(kind) {
  const [source, target] = [state.src, read_tokens()];
  return [kind === "encoder" ? source : target, kind === "decoder" ? target : source];
}

/** The chosen attention, after its heads. */
function sublayer_of({ encoded, decoded }) {
  const { attention, memory_attention } = (state.kind === "encoder" ? encoded : decoded).layers[state.layer];
  return state.kind === "memory" ? memory_attention : attention;
}

/** The weights of the chosen head, and how it gets them. */
function show_head(traced) {
  const { kind, layer, head, side } = state;
  const { q, k, v, keep_mask, scores, weights, out } = traced.heads[kind][layer][head];
  const queries = rows_of(side), keys = names_of(kind)[1].map(token);
  const names = { rows: queries, cols: keys, row: "query", col: "key" };
  const row = framed(traced, side);
  const key = state.key ?? largest_first(weights[row])[0];
  const size = { width: fitting($("head"), queries, keys), height: queries.length > 24 ? 14 : 22 };
  const pairs = { ...names, keep_mask, table: true, chosen: row, ...size };
  const choose = (i, j) => {
    if (side === "source") state.row = i;
    else choose_step(i);
    state.key = j;
    show();
    $("head").querySelector("svg").focus({ preventScroll: true });
  };
  const narrow = { signed: true, width: 12, height: 18 };
  const is_narrow = matchMedia("(max-width: 30rem)").matches; // there it would be long: the reader opens it
  const open = [...$("head").querySelectorAll("details")].map((node) => node.open);
  const work = worked({ ...traced.heads[kind][layer][head], row, key, rows: queries, cols: keys }, (j) => {
    state.key = j;
    show_head(traced);
    $("key").focus({ preventScroll: true });
  });
  const mask = kind === "decoder" ? "; crossed out: after the query (causal mask)"
    : state.hidden.length ? "; crossed out: hidden" : "";
  const from = kind === "memory"
    ? "q comes from the decoder: its vectors, after the layer norm, times a learned matrix. k and v come from the encoder: " +
      "its outputs times two more"
    : "q, k and v are the same vectors, after the layer norm, times three learned matrices";
  const summary = "How this head computes them: q, k, scores; and what it does with them: v, out";
  const { merged, out: added, x } = sublayer_of(traced);
  const asks = { rows: queries, row: "query" };
  const wide = { ...asks, signed: true, width: merged[0].length > 32 ? 8 : 11, height: 16 };
  $("head").replaceChildren(
    heat_map({
      title: `weights of head ${head + 1}`, text: `softmax of each row of the scores ${shape(weights)}${mask}. Press a cell to work it out.`,
      values: weights, ...pairs, choose, marks: [[row, key]],
    }),
    work,
    element("details", {}, element("summary", {}, summary),
      element("p", { class: "small" }, `${from}, plus a bias. Each head has matrices of its own.`),
      element("div", { class: "maps" },
        heat_map({ title: "q", text: `queries: what is looked for ${shape(q)}`, values: q, ...asks, ...narrow }),
        heat_map({ title: "k", text: `keys: what it is compared with ${shape(k)}`, values: k, rows: keys, row: "key", ...narrow }),
        heat_map({
          title: "scores", text: `q kᵀ / √K ${shape(scores)}; K = ${q[0].length} is the width of a head; without √K ` +
            "they would grow with it",
          values: scores, signed: true, ...pairs,
        }),
        heat_map({ title: "v", text: `values: what is passed on ${shape(v)}`, values: v, rows: keys, row: "value", ...narrow }),
        heat_map({ title: "out", text: `weights · v ${shape(out)}`, values: out, ...asks, ...narrow }))),
    element("details", {}, element("summary", {}, "How the heads come together, and what is added to the input"),
      element("div", { class: "maps" },
        heat_map({ title: "all heads", text: `their out, side by side ${shape(merged)}`, values: merged, ...wide }),
        heat_map({
          title: "result", text: `all heads · W + b, with the output matrix of this attention ${shape(added)}`, values: added,
          ...wide,
        }),
        heat_map({ title: "sum", text: `input + result ${shape(x)}: the input of the next box`, values: x, ...wide }))),
  );
  $("head").querySelectorAll("details").forEach((node, i) => {
    node.open = open[i] ?? (node === work && !is_narrow);
  });
}
