"use strict";
// The second half of the page: a drawing of the model, whose boxes are buttons, and what the chosen box computes.

const ATTENTIONS = {
  encoder: {
    title: "Self-attention", of: "Encoder", queries: "source tokens", keys: "source tokens",
    text: "each source token attends to all source tokens",
  },
  decoder: {
    title: "Causal self-attention", of: "Decoder", queries: "target tokens read", keys: "target tokens read",
    text: "each target token attends to itself and to the tokens before it",
  },
  memory: {
    title: "Cross-attention", of: "Decoder", queries: "target tokens read", keys: "source tokens",
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
  const best = largest_first(mean_of(traced.heads.memory.at(-1))[state.step])[0];
  return side === "source" ? best : state.step;
}

/** What the decoder would write if it ended after x. @param {Matrix} x (T, D) */
function ended(x, n = 3) {
  const shares = shares_at(chosen(state.name).model.logits([x[state.step]])[0]);
  return told_shares(shares.map((_, id) => id), shares, n);
}

/** The small text and the small picture of a box. */
function content_of(box, traced) {
  const { kind, side, layer } = box;
  if (ATTENTIONS[kind]) {
    return [`layer ${layer + 1}`, small_map(mean_of(traced.heads[kind][layer]), framed(traced, side))];
  }
  const ids = side === "source" ? state.src : read_tokens();
  const small = {
    tokens: () => `${side === "source" ? "source" : "target read"}: ${ids.length}`,
    embedding: () => (side === "source" ? "a row of a table"
      : `alone it would write ${ended(traced.decoded.embedded.x, 1)}`),
    feed_forward: () => `layer ${layer + 1}` +
      (side === "source" ? "" : `, after which it would write ${ended(traced.decoded.layers[layer].x, 1)}`),
    encoded: () => `${ids.length} vectors`,
    output: () => `${has_written(state.step) ? "wrote" : "writes"} ${told_written(state.step)}, which is read next`,
  };
  return [small[kind]()];
}

function show_parts(traced) {
  const nodes = boxes().map((box) => {
    const [small, picture = ""] = content_of(box, traced);
    const attributes = {
      type: "button", id: key_of(box), class: `box ${box.side}`, style: `grid-row: ${box.row}`,
      "aria-pressed": String(key_of(box) === key_of(state)),
    };
    const node = element("button", attributes, element("b", {}, box.title), element("small", {}, small), picture);
    const place = { tokens: `${box.side}-title`, output: "next-title" }[box.kind]; // what is shown further up
    if (place) node.removeAttribute("aria-pressed");
    node.addEventListener("click", () => (place ? go_to(place) : choose_part(box, traced)));
    return node;
  });
  const row = (kind, side) => boxes().filter((box) => box.kind === kind && box.side === side).map((box) => box.row);
  const arrows = row("memory", "target");
  const last = row("encoded", "source")[0];
  $("diagram").replaceChildren(
    element("h3", { class: "source" }, "Encoder"), element("h3", { class: "target" }, "Decoder"), ...nodes,
    element("i", { class: "bus", style: `grid-row: ${Math.min(last, ...arrows)} / ${Math.max(last, ...arrows) + 1}` }),
    ...arrows.map((at) => element("i", { class: "arrow", style: `grid-row: ${at}` })),
    element("i", { class: "stub", style: `grid-row: ${last}` }),
  );
  show_part(traced);
}

function go_to(id) {
  $(id).focus({ preventScroll: true });
  $(id).scrollIntoView();
}

function choose_part({ kind, side, layer = 0 }, traced) {
  $("diagram").querySelector('[aria-pressed="true"]').setAttribute("aria-pressed", "false");
  Object.assign(state, { kind, side, layer });
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
  const { d_model, d_ff } = chosen(state.name).model;
  const size = { width: d_model > 32 ? 8 : 11, height: 16 };
  const options = { rows: ids.map(token), signed: true, chosen: framed(traced, side), ...size };
  $("heads").replaceChildren();
  if (ATTENTIONS[kind]) show_attention(traced);
  else if (kind === "embedding") {
    const { embedding, positions, x } = stack.embedded;
    const alone = side === "source" ? "" : `If the decoder ended here, it would write ${ended(x)}: it knows only the token ` +
      `read last, ${told(ids[state.step])}, and its position.`;
    say_part(`${of}: embedding and position`, "The row of each token in the table of embeddings, times √D, plus the " +
      `encoding of its position. ${alone}`);
    show_maps(
      heat_map({ title: "embedding", text: `√D · table[id] ${shape(x)}; rows: tokens`, values: embedding, ...options }),
      heat_map({ title: "position", text: `sines and cosines of the position ${shape(x)}`, values: positions, ...options }),
      heat_map({ title: "sum", text: `the input of layer 1 ${shape(x)}`, values: x, ...options }),
    );
  } else if (kind === "feed_forward") {
    const { x } = stack.layers[layer];
    say_part(`${of}, layer ${layer + 1}: feed-forward`, `Each place by itself: relu(x W₁ + b₁) W₂ + b₂, from width D = ` +
      `${d_model} to F = ${d_ff} and back; added to its input, this is the output of the layer. ` +
      `${side === "source" ? "" : `If the decoder ended here, it would write ${ended(x)}.`}`);
    show_maps(heat_map({ title: "output of the layer", text: `${shape(x)}; rows: tokens`, values: x, ...options }));
  } else {
    const { memory } = traced.encoded;
    say_part("Outputs of the encoder", "The outputs of its last layer after one more layer norm: one vector a source token. " +
      "Every cross-attention makes its keys and its values of them.");
    show_maps(heat_map({ title: "outputs", text: `${shape(memory)}; rows: source tokens`, values: memory, ...options }));
  }
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
  const [asks, answers] = names_of(kind);
  const looks = told_shares(answers, mean_of(heads)[row], 2);
  const who = kind === "encoder" ? `The source token at which the framed step looks most, ${told(asks[row])},`
    : `The framed step (row ${told(asks[row])}, the token read last)`;
  say_part(`${of}, layer ${layer + 1}: ${title.toLowerCase()}`, `Here ${text}. Rows: queries, the ${queries}; columns: ` +
    `keys, the ${keys}. ${who} attends, in the mean of the ${heads.length} heads, to ${looks}.`);
  $("heads").style.setProperty("--heads", heads.length);
  $("heads").replaceChildren(...heads.map(({ weights }, h) => {
    const attributes = { type: "button", "aria-pressed": String(h === state.head) };
    const button = element("button", attributes, small_map(weights, row), `head ${h + 1}`);
    button.addEventListener("click", () => {
      $("heads").querySelector('[aria-pressed="true"]').setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", "true");
      state.head = h;
      show_head(traced);
    });
    return button;
  }));
  show_head(traced);
}

/** The ids of the queries and of the keys. */
function names_of(kind) {
  const [source, target] = [state.src, read_tokens()];
  return [kind === "encoder" ? source : target, kind === "decoder" ? target : source];
}

/** The weights of the chosen head, and how it gets them. */
function show_head(traced) {
  const { kind, layer, head, side } = state;
  const { q, k, v, keep_mask, scores, weights, out } = traced.heads[kind][layer][head];
  const [queries, keys] = names_of(kind).map((ids) => ids.map(token));
  const names = { rows: queries, cols: keys, row: "query", col: "key" };
  const pairs = { ...names, keep_mask, table: true, chosen: framed(traced, side) };
  const narrow = { signed: true, width: 12, height: 18 };
  const open = [...$("head").querySelectorAll("details")].map((node) => node.open);
  const mask = kind === "decoder" ? "; crossed out: after the query (causal mask)"
    : state.hidden.length ? "; crossed out: hidden" : "";
  const summary = "How this head computes them: q, k, scores; and what it does with them: v, out";
  $("head").replaceChildren(
    heat_map({
      title: `weights of head ${head + 1}`, text: `softmax of each row of the scores ${shape(weights)}${mask}`,
      values: weights, ...pairs,
    }),
    element("details", {}, element("summary", {}, summary),
      element("div", { class: "maps" },
        heat_map({ title: "q", text: `queries ${shape(q)}`, values: q, rows: queries, row: "query", ...narrow }),
        heat_map({ title: "k", text: `keys ${shape(k)}`, values: k, rows: keys, row: "key", ...narrow }),
        heat_map({ title: "scores", text: `q kᵀ / √K ${shape(scores)}`, values: scores, signed: true, ...pairs }),
        heat_map({ title: "v", text: `values ${shape(v)}`, values: v, rows: keys, row: "value", ...narrow }),
        heat_map({ title: "out", text: `weights · v ${shape(out)}`, values: out, rows: queries, row: "query", ...narrow }))),
  );
  $("head").querySelectorAll("details").forEach((node, i) => {
    node.open = open[i] ?? false;
  });
}
