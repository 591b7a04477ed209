"use strict";
// Part 1 of the page: a trained model at work. The state is the source, what the decoder has read, and the chosen head.

const models = {}; // name -> {model, vocabulary, content}, made when it is first used
const state = { name: "reverse", src: [], tgt_in: [BOS], kind: "memory", layer: 0, head: 0, side: "source" };
const KINDS = {
  encoder: { title: "Encoder: self-attention", text: "each source token attends to all source tokens" },
  decoder: { title: "Decoder: self-attention", text: "each target token attends to itself and the tokens before it" },
  memory: { title: "Decoder: cross-attention", text: "each target token attends to the outputs of the encoder" },
};
const percent = (share) => `${number(100 * share, 1)}\u00a0%`;
const TASKS = { // what differs between the models
  reverse: {
    Vocabulary: Letters,
    ends: [], // what follows the tokens of a source
    most: 20, // tokens of a source
    limit: (n) => n + 5, // tokens of the target of a source of n tokens
    examples: ["attention", "model", "level", "abcdefghij", "transformer"], // the last is longer than any in training
    wanted: "at least one letter from a to z",
    left_out: /[^a-z]/i,
    skill: ({ max_len, exact_match, exact_match_longer }) =>
      `Trained on words of at most ${max_len} random letters. It reverses ${percent(exact_match)} of other words of such ` +
      `lengths, but only ${percent(exact_match_longer)} of longer ones, as it has never seen their positions.`,
    tokens: "Here each letter is a token.",
  },
  "en-fr": {
    Vocabulary: Subwords,
    ends: [EOS],
    most: 40,
    limit: (n) => Math.min(n + 50, 80),
    wanted: "an English sentence",
    skill: ({ steps, n_sentences, bleu_lower }) =>
      `Trained for ${steps.toLocaleString("en")} steps on the ${n_sentences.toLocaleString("en")} sentences of Multi30k, ` +
      "which describe pictures. It is too small to translate well and is often wrong: greedy decoding reaches BLEU " +
      `${bleu_lower} (lower-cased) on the test text of 2016. For text of other kinds it is of no use.`,
    tokens: "Here tokens are parts of words: ▁ is a space, ↑ says that the next word begins with a capital letter, ‿ " +
      "that there is no space on this side; <s> is the begin token, </s> the end token.",
  },
};
const $ = (id) => document.getElementById(id);

function chosen(name) {
  if (!models[name]) {
    const content = MODELS[name];
    const vocabulary = new TASKS[name].Vocabulary(content.tokens);
    models[name] = { model: new Transformer(content), vocabulary, content };
  }
  return models[name];
}

/** The ids of a text as the model was trained on them. @returns {number[]} (S) */
function source_of(name, text) {
  const ids = chosen(name).vocabulary.encode(text);
  return ids.length ? [...ids, ...TASKS[name].ends] : ids;
}

/**
 * Everything that is computed from a source and the target so far.
 * @param {string} name of the model
 * @param {number[]} src (S)
 * @param {number[]} tgt_in (T)
 */
function trace(name, src, tgt_in) {
  const { model } = chosen(name);
  const encoded = model.encode(src);
  const decoded = model.decode(encoded.memory, tgt_in);
  const logits = decoded.logits.at(-1);
  const heads = {
    encoder: encoded.layers.map((layer) => layer.attention),
    decoder: decoded.layers.map((layer) => layer.attention),
    memory: decoded.layers.map((layer) => layer.memory_attention),
  };
  return { encoded, decoded, heads, logits, probabilities: softmax(logits) };
}

/** The most probable next token; padding is never generated. @param {number[]} logits (V) */
function greedy(logits) {
  return logits.reduce((best, logit, id) => (id !== PAD && logit > logits[best] ? id : best), BOS);
}

// -- reading and changing the state -----------------------------------------------------------------------------------

const task = () => TASKS[state.name];
const is_finished = () => state.tgt_in.at(-1) === EOS || state.tgt_in.length > task().limit(state.src.length);
const read_tokens = () => (state.tgt_in.at(-1) === EOS ? state.tgt_in.slice(0, -1) : state.tgt_in);

function choose_model(name) {
  const { content } = chosen(name);
  Object.assign(state, { name, tgt_in: [BOS], kind: "memory", layer: content.model.n_layers - 1, head: 0 });
  const about = content.about;
  const { d_model, n_layers, n_heads } = content.model;
  const size = `${about.n_parameters.toLocaleString("en")} parameters, width D = ${d_model}, ` +
    `encoder and decoder of ${n_layers} layers with ${n_heads} heads each, vocabulary of ${content.tokens.length} tokens. `;
  $("about").textContent = size + task().skill(about);
  $("token-text").textContent = task().tokens;
  const examples = task().examples ?? content.examples.map((example) => example.text);
  $("examples").replaceChildren(...examples.map((text) => element("option", {}, text)));
  choose_text(examples[0]);
  $("text").value = examples[0];
}

function choose_text(text) {
  const src = source_of(state.name, text);
  const { most, ends, wanted, left_out } = task();
  const is_long = src.length > most + ends.length;
  $("message").textContent = !src.length ? `Type ${wanted}: the page still shows the last source.`
    : is_long ? `Only the first ${most} tokens are taken.`
      : left_out?.test(text) ? "Only the letters from a to z are taken." : "";
  if (!src.length) return;
  state.src = is_long ? [...src.slice(0, most), ...ends] : src;
  state.tgt_in = [BOS];
  show();
}

function take(id) {
  if (is_finished()) return;
  state.tgt_in.push(id);
  show();
}

function take_all() {
  const { model } = chosen(state.name);
  const { memory } = model.encode(state.src);
  while (!is_finished()) state.tgt_in.push(greedy(model.decode(memory, state.tgt_in).logits.at(-1)));
  show();
}

// -- drawing ----------------------------------------------------------------------------------------------------------

const token = (id) => chosen(state.name).vocabulary.pieces[id];

function show() {
  const { vocabulary } = chosen(state.name);
  const traced = trace(state.name, state.src, read_tokens());
  show_tokens("source", state.src);
  show_tokens("target", state.tgt_in);
  show_next(traced);
  show_heads(traced);
  show_head(traced);
  show_embeddings(traced);
  $("read").textContent = vocabulary.decode(state.src);
  $("said").textContent = vocabulary.decode(state.tgt_in) + (state.tgt_in.at(-1) === EOS ? " <end>" : " …");
  $("said").parentElement.scrollTop = $("said").parentElement.scrollHeight;
  for (const id of ["next", "end"]) $(id).disabled = is_finished();
  for (const id of ["back", "begin"]) $(id).disabled = state.tgt_in.length === 1;
}

function show_tokens(id, ids) {
  $(id).replaceChildren(...ids.map((id) => element("li", {}, token(id), element("small", {}, `id ${id}`))));
}

function show_next({ logits, probabilities }) {
  const [T, V] = [read_tokens().length, logits.length];
  $("next-text").textContent = `The decoder has read ${T} ${T === 1 ? "token" : "tokens"}. Its last output gives ${V} ` +
    "logits, one for each token of the vocabulary; softmax makes probabilities of them.";
  const best = logits.map((_, id) => id).sort((a, b) => logits[b] - logits[a]).slice(0, 10);
  const rows = best.map((id) => {
    const disabled = is_finished() || id === PAD;
    const button = element("button", { type: "button", disabled, "aria-label": `take ${token(id)}` }, token(id));
    button.addEventListener("click", () => {
      take(id);
      ($("distribution").querySelector("button:enabled") ?? $("begin")).focus({ preventScroll: true });
    });
    const bar = element("div", { class: "bar", style: `width: ${(100 * probabilities[id]).toFixed(2)}%` });
    const shown = [button, String(id), number(logits[id], 3), number(probabilities[id]), bar];
    return element("tr", {}, ...shown.map((content) => element("td", {}, content)));
  });
  $("distribution").tBodies[0].replaceChildren(...rows);
}

function show_heads({ heads }) {
  const blocks = Object.entries(KINDS).flatMap(([kind, { title, text }]) => {
    const buttons = heads[kind].flatMap((layer, i) => layer.map(({ weights }, h) => {
      const pressed = kind === state.kind && i === state.layer && h === state.head;
      const name = `layer ${i + 1}, head ${h + 1}`;
      const attributes = { type: "button", "aria-pressed": String(pressed), "aria-label": `${title}, ${name}` };
      const button = element("button", attributes, small_map(weights), name);
      button.addEventListener("click", () => {
        Object.assign(state, { kind, layer: i, head: h });
        $("heads").querySelector('[aria-pressed="true"]').setAttribute("aria-pressed", "false");
        button.setAttribute("aria-pressed", "true");
        show_head({ heads });
      });
      return button;
    }));
    const style = `--heads: ${heads[kind][0].length}`;
    return [element("h4", {}, `${title}: ${text}`), element("div", { class: "stack", style }, ...buttons)];
  });
  $("heads").replaceChildren(...blocks);
}

function show_head({ heads }) {
  const { q, k, v, keep_mask, scores, weights, out } = heads[state.kind][state.layer][state.head];
  const [T, S, K] = [q.length, k.length, q[0].length];
  const { title, text } = KINDS[state.kind];
  const source = state.src.map(token);
  const target = read_tokens().map(token);
  const queries = state.kind === "encoder" ? source : target;
  const keys = state.kind === "decoder" ? target : source;
  $("head-title").textContent = `One head: ${title.toLowerCase()}, layer ${state.layer + 1}, head ${state.head + 1}`;
  const mask = state.kind === "decoder"
    ? "The causal mask crosses out the keys after the query."
    : "Nothing is masked, as one sequence has no padding.";
  $("head-text").textContent = `Here ${text}: T = ${T} queries, S = ${S} keys, width K = ${K}. ${mask}`;
  const pairs = { rows: queries, cols: keys, row: "query", col: "key", keep_mask };
  const size = `(${T}, ${S})`;
  const may_attend = {
    values: keep_mask.map((row) => row.map(Number)),
    opacity: () => 0.12,
    scale: "crossed out: masked",
    told: (value) => (value ? "may attend" : "may not attend"),
  };
  const narrow = { signed: true, width: 12, height: 18 };
  const open = [...$("head").querySelectorAll("details")].map((table) => table.open);
  $("head").replaceChildren(
    heat_map({ title: "q", text: `queries (${T}, ${K})`, values: q, rows: queries, row: "query", ...narrow }),
    heat_map({ title: "k", text: `keys (${S}, ${K})`, values: k, rows: keys, row: "key", ...narrow }),
    heat_map({ title: "v", text: `values (${S}, ${K})`, values: v, rows: keys, row: "value", ...narrow }),
    heat_map({ title: "mask", text: `may the query attend to the key? ${size}`, ...pairs, ...may_attend }),
    heat_map({ title: "scores", text: `q kᵀ / √K ${size}`, values: scores, signed: true, table: true, ...pairs }),
    heat_map({ title: "weights", text: `softmax of each row of the scores ${size}`, values: weights, table: true, ...pairs }),
    heat_map({ title: "out", text: `weights · v (${T}, ${K})`, values: out, rows: queries, row: "query", ...narrow }),
  );
  $("head").querySelectorAll("details").forEach((table, i) => {
    table.open = open[i];
  });
}

function show_embeddings({ encoded, decoded }) {
  const { embedding, positions, x } = (state.side === "source" ? encoded : decoded).embedded;
  const ids = state.side === "source" ? state.src : read_tokens();
  const size = `(${x.length}, ${x[0].length})`;
  const options = { rows: ids.map(token), signed: true, width: x[0].length > 32 ? 8 : 11, height: 16 };
  $("embeddings").replaceChildren(
    heat_map({ title: "embedding", text: `√D · table[id] ${size}`, values: embedding, ...options }),
    heat_map({ title: "position", text: `sines and cosines of the position ${size}`, values: positions, ...options }),
    heat_map({ title: "sum", text: `the input of the first layer ${size}`, values: x, ...options }),
  );
}

// -- events -----------------------------------------------------------------------------------------------------------

for (const radio of document.querySelectorAll("[name=model]")) {
  radio.disabled = !MODELS[radio.value];
  radio.addEventListener("change", () => choose_model(radio.value));
}
for (const radio of document.querySelectorAll("[name=side]")) {
  radio.addEventListener("change", () => {
    state.side = radio.value;
    show();
  });
}
$("text").addEventListener("input", (event) => choose_text(event.target.value));
$("examples").addEventListener("change", (event) => {
  $("text").value = event.target.value;
  choose_text(event.target.value);
});

/** A disabled button loses the focus: give it to the other one. */
function on_click(id, other, act) {
  $(id).addEventListener("click", () => {
    act();
    if ($(id).disabled) $(other).focus({ preventScroll: true });
  });
}
on_click("begin", "next", () => {
  state.tgt_in = [BOS];
  show();
});
on_click("back", "next", () => {
  state.tgt_in.pop();
  show();
});
on_click("next", "back", () => take(greedy(trace(state.name, state.src, state.tgt_in).logits)));
on_click("end", "begin", take_all);

document.querySelector("[name=model][value=reverse]").checked = true;
document.querySelector("[name=side][value=source]").checked = true;
choose_model("reverse");
