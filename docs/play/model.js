"use strict";
// Part 1 of the page: a trained model at work. A step of the decoder reads the target so far and writes the next token.

const models = {}; // name -> {model, vocabulary, content}, made when it is first used
const state = {
  name: "en-fr", text: "", src: [], tgt_in: [BOS],
  hidden: [], // places of the source that attention does not see
  step: 0, // the one that is looked at: it reads tgt_in[0 ... step] and writes tgt_in[step + 1]
  temperature: 1, draw: false, // whether tokens are drawn at random
  kind: "memory", layer: 0, head: 0, side: "source",
};
const KINDS = {
  encoder: { title: "Encoder: self-attention", text: "each source token attends to all source tokens" },
  decoder: { title: "Decoder: self-attention", text: "each target token attends to itself and the tokens before it" },
  memory: { title: "Decoder: cross-attention", text: "each target token attends to the outputs of the encoder" },
};
const UNSURE = 0.5; // a probability below which a token is marked
const count = (n) => n.toLocaleString("en");
const percent = (share) => `${number(100 * share, 1)}\u00a0%`;
const largest_first = (values) => values.map((_, i) => i).sort((a, b) => values[b] - values[a]);
const mean_of = (heads) => matrix(heads[0].weights.length, heads[0].weights[0].length, (t, s) =>
  heads.reduce((sum, { weights }) => sum + weights[t][s], 0) / heads.length);
const TASKS = { // what differs between the models
  reverse: {
    Vocabulary: Letters,
    ends: [], // what follows the tokens of a source
    most: 20, // tokens of a source
    limit: (n) => n + 5, // tokens of the target of a source of n tokens
    examples: ["attention", "model", "level", "abcdefghij", "transformer"], // the last is longer than any in training
    first: "a word",
    wanted: "at least one letter from a to z",
    left_out: /[^a-z]/i,
    skill: ({ max_len, exact_match, exact_match_longer }) =>
      `Trained on words of at most ${max_len} random letters. It reverses ${percent(exact_match)} of other words of such ` +
      `lengths, but only ${percent(exact_match_longer)} of longer ones, as it has never seen their positions.`,
    tokens: "Here each letter is a token.",
    pattern: (weights) => {
      const S = state.src.length;
      const steps = weights.slice(0, S);
      const wrong = steps.map((row, t) => [t, S - 1 - t, largest_first(row)[0]]).filter(([, wanted, at]) => at !== wanted);
      const right = steps.length - wrong.length;
      const counted = `At ${right} of the ${steps.length} steps here the largest weight is on the letter that has to be written`;
      if (2 * right >= steps.length) {
        return `${counted}; from the last letter to the first, this is a diagonal from the upper right to the lower left.`;
      }
      const [t, wanted, at] = wrong[0];
      return `${counted}. ${t ? `Step ${t + 1}` : "The first step"} should look at ${told(state.src[wanted])}, and looks ` +
        `at ${told(state.src[at])}${state.src[at] === state.src[wanted] ? " of another place" : ""}.`;
    },
  },
  "en-fr": {
    Vocabulary: Subwords,
    ends: [EOS],
    most: 40,
    limit: (n) => Math.min(n + 50, 80),
    first: "a sentence",
    wanted: "an English sentence",
    skill: ({ steps, n_sentences, bleu_lower, n_test, n_exact }) =>
      `Trained for ${count(steps)} steps on the ${count(n_sentences)} sentences of Multi30k, which describe pictures. Of ` +
      `the ${count(n_test)} sentences of the test text of 2016, which it has never seen, it translates ${n_exact} exactly ` +
      `as a person did; greedy decoding reaches BLEU ${bleu_lower} (lower-cased). It is small and often wrong, and for ` +
      "text of other kinds it is of no use.",
    tokens: "Here tokens are words or parts of words: · says that a token goes on with the word before it, ↑ that the " +
      "next word begins with a capital letter; <s> is the begin token, </s> the end token.",
    pattern: (weights) => {
      const back = steps_back(weights).map(({ t, s, from }) => {
        const is_adjective = told_written(t) === "‘jaune’" && told(state.src[s]) === "‘yellow’";
        return `the step that ${has_written(t) ? "wrote" : "writes"} ${told_written(t)} looks back at ${told(state.src[s])}` +
          (is_adjective ? `, after a step that looked at ${told(state.src[from])}: this French adjective follows its noun` : "");
      });
      return `Here ${back.join(", and ") || "no step looks back with more than half of its attention"}.`;
    },
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
 * @param {number[]} hidden places of the source
 */
function trace(name, src, tgt_in, hidden = []) {
  const { model } = chosen(name);
  const keep = src.map((_, s) => !hidden.includes(s));
  const encoded = model.encode(src, keep);
  const decoded = model.decode(encoded.memory, tgt_in, keep);
  decoded.logits = model.logits(decoded.x);
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

/** A token with probability softmax(logits / temperature). @param {number[]} logits (V) */
function sample(logits, temperature, uniform = Math.random()) {
  const probabilities = softmax(logits.map((logit, id) => (id === PAD ? -Infinity : logit / temperature)));
  const drawn = probabilities.findIndex((share) => (uniform -= share) < 0);
  return drawn < 0 ? greedy(logits) : drawn; // rounding may leave a little
}

/** Steps that look back: they give half of their attention to a token left of that of the last such step. @param {Matrix} weights (T, S) */
function steps_back(weights) {
  let from = -1; // where the last step looked that gave one token half of its attention
  return weights.flatMap((row, t) => {
    const s = largest_first(row)[0], before = from;
    if (row[s] < 0.5) return [];
    from = s;
    return s < before ? [{ t, s, from: before }] : [];
  });
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
  const size = `${count(about.n_parameters)} parameters, width D = ${d_model}, ` +
    `encoder and decoder of ${n_layers} layers with ${n_heads} heads each, vocabulary of ${content.tokens.length} tokens. `;
  $("about").textContent = size + task().skill(about);
  $("token-text").textContent = task().tokens;
  const groups = { "": task().examples ?? [] };
  for (const { text, translation, reference } of content.examples ?? []) {
    (groups[translation === reference ? "translated as by a person" : "translated wrongly"] ??= []).push(text);
  }
  const options = Object.entries(groups).map(([label, texts]) =>
    [label, texts.map((text) => element("option", {}, text))]);
  $("examples").replaceChildren(...options.flatMap(([label, nodes]) =>
    (label ? [element("optgroup", { label }, ...nodes)] : nodes)));
  choose_example($("examples").value);
}

function choose_example(text) {
  $("text").value = text;
  choose_text(text, take_all);
}

/** @param {string} text @param {() => void} then what shows it */
function choose_text(text, then = () => write([BOS])) {
  const src = source_of(state.name, text);
  const { most, ends, wanted, left_out } = task();
  const is_long = src.length > most + ends.length;
  const unknown = chosen(state.name).vocabulary.unknown?.(text) ?? [];
  $("message").textContent = !src.length ? `Type ${wanted}: the page still shows the last source.` : [
    is_long && `Only the first ${most} tokens are taken.`,
    left_out?.test(text) && "Only the letters from a to z are taken.",
    unknown.length && `It does not know ${unknown.length === 1 ? "the character" : "the characters"} ` +
      `${unknown.slice(0, 8).join(" ")}${unknown.length > 8 ? " …" : ""}; each run of them becomes ‘<unk>’.`,
  ].filter(Boolean).join(" ");
  if (!src.length) return;
  Object.assign(state, { text, src: is_long ? [...src.slice(0, most), ...ends] : src, hidden: [], tgt_in: [BOS] });
  then();
}

/** Change the target, and look at its last step. */
function write(tgt_in) {
  state.tgt_in = tgt_in;
  state.step = read_tokens().length - 1;
  show();
}

/** Write n tokens, or as many as are missing. */
function take(n) {
  const { model } = chosen(state.name);
  const keep = state.src.map((_, s) => !state.hidden.includes(s));
  const { memory } = model.encode(state.src, keep);
  for (; n > 0 && !is_finished(); n--) {
    const [logits] = model.logits([model.decode(memory, state.tgt_in, keep).x.at(-1)]);
    state.tgt_in.push(state.draw ? sample(logits, state.temperature) : greedy(logits));
  }
}

/** Write all tokens, and look at a step that looks back, if there is one. */
function take_all() {
  take(Infinity);
  const { heads } = trace(state.name, state.src, read_tokens(), state.hidden);
  state.step = steps_back(mean_of(heads.memory.at(-1)))[0]?.t ?? 0;
  show();
}

// -- drawing ----------------------------------------------------------------------------------------------------------

const token = (id) => chosen(state.name).vocabulary.shown(id);

/** A token in a sentence. */
const told = (id) => `‘${token(id)}’`;
const told_shares = (ids, shares, n) => // those that are not 0.00
  largest_first(shares).slice(0, n).filter((i, rank) => !rank || shares[i] >= 0.005).map((i) => `${told(ids[i])} ${number(shares[i], 2)}`).join(", ");

function show() {
  const { vocabulary } = chosen(state.name);
  const traced = trace(state.name, state.src, read_tokens(), state.hidden);
  const alignment = mean_of(traced.heads.memory.at(-1)); // (T, S)
  show_tokens(traced);
  show_picture(traced, alignment);
  show_hidden(traced);
  $("lesson").textContent = lesson(traced);
  show_next(traced);
  show_layers(traced, alignment);
  show_head(traced);
  show_embeddings(traced);
  $("read").textContent = vocabulary.decode(state.src);
  $("said").textContent = vocabulary.decode(state.tgt_in) + (state.tgt_in.at(-1) === EOS ? " <end>" : " …");
  for (const id of ["next", "end"]) $(id).disabled = is_finished();
  for (const id of ["back", "begin"]) $(id).disabled = state.tgt_in.length === 1;
}

/** The probability that each written token had. @returns {number[]} */
function shares_of({ decoded }) {
  return state.tgt_in.slice(1).map((id, t) => softmax(decoded.logits[t])[id]);
}

function show_tokens(traced) {
  const shares = shares_of(traced);
  const button = (place, pressed, note, act, ...classes) => {
    const [list, i, id] = place;
    const attributes = { type: "button", "aria-pressed": String(pressed), class: classes.join(" ") };
    const node = element("button", attributes, token(id), element("small", {}, note));
    node.addEventListener("click", () => {
      act();
      show();
      $(list).children[i].firstChild.focus({ preventScroll: true });
    });
    return element("li", {}, node);
  };
  $("source").replaceChildren(...state.src.map((id, s) => {
    const is_hidden = state.hidden.includes(s);
    return button(["source", s, id], is_hidden, is_hidden ? "hidden" : `id ${id}`, () => {
      state.hidden = is_hidden ? state.hidden.filter((place) => place !== s) : [...state.hidden, s];
    });
  }));
  $("target").replaceChildren(element("li", {}, token(BOS)), ...shares.map((share, t) =>
    button(["target", t + 1, state.tgt_in[t + 1]], t === state.step, `p ${number(share, 2)}`, () => {
      state.step = t;
    }, share < UNSURE ? "unsure" : "")));
}

const has_written = (t) => t + 1 < state.tgt_in.length; // the last step may not
const told_written = (t) => (has_written(t) ? told(state.tgt_in[t + 1]) : "the next token");

function show_picture({ heads }, alignment) {
  const { step, src, tgt_in } = state;
  const n_heads = heads.memory[0].length;
  $("picture").replaceChildren(heat_map({
    title: "Where each step looks.",
    text: "Click a row to choose its step.",
    values: alignment, keep_mask: heads.memory[0][0].keep_mask, height: 24, width: 24, chosen: step,
    rows: read_tokens().map((_, t) => (has_written(t) ? token(tgt_in[t + 1]) : "next?")), row: "writes",
    cols: src.map(token), col: "looks at",
    choose: (t) => {
      state.step = t;
      show();
    },
  }));
  const best = largest_first(alignment[step])[0];
  $("step-text").textContent = `The framed step ${has_written(step) ? "wrote" : "writes"} ${told_written(step)}. It had ` +
    `read the target up to ${told(tgt_in[step])}, and looks most at ${told(src[best])}, with ` +
    `${percent(alignment[step][best])} of its attention.`;
  $("picture-text").textContent = "Row: a step, named by the token that it writes. Column: a source token. The darker " +
    `(in a dark theme, the lighter), the more attention, as the mean of the ${n_heads} heads of the last layer. ` +
    `${task().pattern(alignment)} In the pictures further down the same row is named by its query, the token read last.`;
}

/** What hiding does to the chosen step. */
function show_hidden({ decoded }) {
  const { name, src, hidden, step, tgt_in } = state;
  if (!hidden.length) {
    $("hidden-text").textContent = "Attention shows where a step looks. Whether it matters, you find by hiding: choose a " +
      "target token, hide a source token, and see what becomes of the probability.";
    return;
  }
  const names = hidden.map((s) => told(src[s])).join(", ");
  const [are, them] = hidden.length === 1 ? ["is", "it"] : ["are", "them"];
  if (tgt_in.length === 1) {
    $("hidden-text").textContent = `${names} ${are} hidden: press To the end to write without ${them}.`;
    return;
  }
  const all = trace(name, src, read_tokens()).decoded.logits[step];
  const [before, after] = [all, decoded.logits[step]].map(softmax);
  const id = tgt_in[step + 1] ?? greedy(all);
  const best = greedy(decoded.logits[step]);
  const effect = Math.abs(after[id] - before[id]) < 0.01
    ? `Hiding ${names} makes no difference at this step: the probability of ${told(id)} changes by less than 0.01.`
    : `With ${names} hidden, the probability of ${told(id)} at the framed step is ${number(after[id], 3)} instead of ` +
      `${number(before[id], 3)}; the most probable token is ${told(best)}.`;
  $("hidden-text").textContent = `${effect} What was written stays: press Begin again, then To the end, to write ` +
    `without ${them}.`;
}

/** What to learn from this sentence. */
function lesson(traced) {
  const { content, vocabulary } = chosen(state.name);
  const parts = [];
  const example = content.examples?.find(({ text }) => text === state.text);
  if (example) {
    const { translation, reference, bleu, rare } = example;
    const seen = Object.entries(rare).map(([word, n]) => `${n} have ‘${word}’`).join(", ");
    const always = state.hidden.length || state.draw ? "With nothing hidden or drawn at random, always" : "Always";
    parts.push(translation === reference
      ? `${always} taking the most probable token gives the same words as the translation of a person.`
      : `A person translated: “${reference}” ${always} taking the most probable token has BLEU ${bleu} of 100.`);
    if (seen) parts.push(`Of the ${count(content.about.n_sentences)} sentences of its training, ${seen}.`);
  } else if (content.examples) {
    parts.push("No person's translation of your sentence is stored here; a dashed token is a guess.");
  }
  const { max_len } = content.about;
  if (state.src.length > max_len) {
    parts.push(`This word has ${state.src.length} letters, and no word of the training had more than ${max_len}: the model ` +
      "does not know the positions after that.");
  }
  const cut = vocabulary.words?.(state.src).filter((pieces) => pieces.length > 2) ?? [];
  if (cut.length) {
    parts.push(`Cut into small parts: ${cut.map((pieces) => pieces.join("·")).join(", ")}. A word that was frequent in the ` +
      "training is one token; for a rare one the model has seen too little to know what its parts mean together.");
  }
  const shares = shares_of(traced);
  const unsure = shares.filter((share) => share < UNSURE).length;
  if (unsure) {
    const worst = largest_first(shares).at(-1);
    parts.push(`Unsure (a dashed border: p below ${UNSURE}) at ${unsure} of ${shares.length} tokens, most at ` +
      `${told(state.tgt_in[worst + 1])}.`);
  } else if (shares.length) parts.push(`Each token had p of ${UNSURE} or more, which does not say that it is right.`);
  return parts.join(" ");
}

function show_next({ decoded }) {
  const { step, temperature, tgt_in } = state;
  const logits = decoded.logits[step];
  const V = logits.length;
  const probabilities = softmax(logits.map((logit) => logit / temperature));
  $("next-title").textContent = has_written(step) ? `The step that wrote ${told_written(step)}` : "The next token";
  $("next-text").textContent = `The decoder has read ${step + 1} ${step ? "tokens" : "token"}. Its output gives ${V} ` +
    "logits, one for each token of the vocabulary; softmax(logits / temperature) makes probabilities of them.";
  const told_spread = (shares) => {
    const best = largest_first(shares);
    let n = 0;
    for (let sum = 0; sum < 0.9 && n < V; n++) sum += shares[best[n]];
    const share = n === 1 ? "token has" : "tokens share";
    return `${told(best[0])} has probability ${number(shares[best[0]], 2)}, and ${n} ${share} 90 % of all`;
  };
  $("temperature-shown").textContent = number(temperature, 1);
  $("temperature-text").textContent = `At temperature ${number(temperature, 1)} ${told_spread(probabilities)}` +
    (temperature === 1 ? ". " : `; at 1 ${told_spread(softmax(logits))}. `) + "The order of the tokens is always the " +
    "same: below 1 the probable ones gain, above 1 the improbable ones. So it matters only if tokens are drawn at " +
    "random: check the box, press Begin again, then To the end.";
  const rows = largest_first(logits).slice(0, 10).map((id) => {
    const attributes = { type: "button", disabled: id === PAD, "aria-label": `take ${token(id)}` };
    const button = element("button", attributes, token(id));
    button.addEventListener("click", () => {
      write([...tgt_in.slice(0, step + 1), id]);
      $("distribution").querySelector("button:enabled").focus({ preventScroll: true });
    });
    const bar = element("div", { class: "bar", style: `width: ${(100 * probabilities[id]).toFixed(2)}%` });
    const shown = [button, String(id), number(logits[id], 3), number(probabilities[id]), bar];
    return element("tr", {}, ...shown.map((content) => element("td", {}, content)));
  });
  $("distribution").tBodies[0].replaceChildren(...rows);
}

/** What the decoder would write if it ended after x. @param {Matrix} x (T, D) */
function ended(x) {
  const shares = softmax(chosen(state.name).model.logits([x[state.step]])[0]);
  return told_shares(shares.map((_, id) => id), shares, 3);
}

function show_layers({ heads, decoded }, alignment) {
  const { src, step } = state;
  const read = read_tokens();
  const looked_at = largest_first(alignment[step])[0];
  const looks = (layer, t, ids) => told_shares(ids, mean_of(layer)[t], 2);
  $("embedding-text").textContent = `If the decoder ended here, it would write ${ended(decoded.embedded.x)}: it knows ` +
    `only the token read last, ${told(read[step])}.`;
  const attends = `attends, in the mean of the ${heads.memory[0].length} heads, to`;
  const layers = [
    ...heads.encoder.map((layer, i) => [`Encoder, layer ${i + 1}`, ["encoder"], i,
      `The source token at which the framed step looks most, ${told(src[looked_at])}, ${attends} ` +
      `${looks(layer, looked_at, src)}.`]),
    ...heads.decoder.map((layer, i) => [`Decoder, layer ${i + 1}`, ["decoder", "memory"], i,
      `The step that ${has_written(step) ? "wrote" : "writes"} ${told_written(step)} (row ${told(read[step])}, the token ` +
      `read last) ${attends} ${looks(layer, step, read)} of the target, and to ` +
      `${looks(heads.memory[i], step, src)} of the source. If the decoder ended after this layer, it would write ${ended(decoded.layers[i].x)}.`]),
  ];
  $("heads").replaceChildren(...layers.flatMap(([title, kinds, i, text]) => [
    element("h3", {}, title), element("p", {}, text), ...kinds.flatMap((kind) =>
      head_buttons(kind, i, heads, kind === "encoder" ? looked_at : step)),
  ]));
}

function head_buttons(kind, i, heads, row) {
  const { title, text } = KINDS[kind];
  const buttons = heads[kind][i].map(({ weights }, h) => {
    const pressed = kind === state.kind && i === state.layer && h === state.head;
    const name = `${title}, layer ${i + 1}, head ${h + 1}`;
    const attributes = { type: "button", "aria-pressed": String(pressed), "aria-label": name };
    const button = element("button", attributes, small_map(weights, row), `head ${h + 1}`);
    button.addEventListener("click", () => {
      Object.assign(state, { kind, layer: i, head: h });
      $("heads").querySelector('[aria-pressed="true"]').setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", "true");
      show_head({ heads });
    });
    return button;
  });
  const style = `--heads: ${buttons.length}`;
  return [element("h4", {}, `${title.split(": ")[1]}: ${text}`), element("div", { class: "stack", style }, ...buttons)];
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
  const mask = state.kind === "decoder" ? "The causal mask crosses out the keys after the query."
    : state.hidden.length ? "The hidden tokens are masked." : "Nothing is masked, as one sequence has no padding.";
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
$("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  if (source_of(state.name, event.target.value).length) take_all();
  else $("message").textContent = `Type ${task().first} first.`;
});
$("examples").addEventListener("change", (event) => choose_example(event.target.value));
$("temperature").addEventListener("input", (event) => {
  state.temperature = Number(event.target.value);
  show();
});
$("draw").addEventListener("change", (event) => {
  state.draw = event.target.checked;
});

/** A disabled button loses the focus: give it to the other one. */
function on_click(id, other, act) {
  $(id).addEventListener("click", () => {
    act();
    if ($(id).disabled) $(other).focus({ preventScroll: true });
  });
}
on_click("begin", "next", () => write([BOS]));
on_click("back", "next", () => write(state.tgt_in.slice(0, -1)));
on_click("next", "back", () => {
  take(1);
  write(state.tgt_in);
});
on_click("end", "begin", take_all);

document.querySelector("[name=model][value=en-fr]").checked = true;
document.querySelector("[name=side][value=source]").checked = true;
Object.assign($("temperature"), { value: 1 });
$("draw").checked = false;
choose_model("en-fr");
