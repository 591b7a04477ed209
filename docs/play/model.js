"use strict";
// A trained model at work, and the state of the page. A step of the decoder reads the target so far and writes the next token.

const models = {}; // name -> {model, vocabulary, content}, made when it is first used
const state = {
  name: "en-fr", text: "", src: [], tgt_in: [BOS],
  hidden: [], // places of the source that attention does not see
  forced: [], // places of the target whose token the reader chose
  seen: [], // for each token of the target, the places that were hidden when it was written
  is_own: true, // whether the model, as it is now, writes the target by itself
  best: [], // for each step, the token that the model, as it is now, finds most probable
  step: 0, // the one that is selected: it reads tgt_in[0 ... step] and writes tgt_in[step + 1]
  why: "", // why this step is selected
  temperature: 1, draw: false, // whether tokens are drawn at random
  kind: "memory", side: "target", layer: 0, head: 0, // the part that is shown, and one of its heads
  row: undefined, // the source token that is framed in the encoder, if the reader chose one
  key: undefined, // the key whose weight is worked out, if the reader chose one
};
const UNSURE = 0.5; // a probability (at temperature 1) below which a token is marked
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
    title: "A word of yours",
    hint: "It was trained on words of at most 10 random letters.",
    known: ["hello", "npformer"],
    wanted: "at least one letter from a to z",
    left_out: /[^a-z]/i,
    skill: ({ max_len, exact_match, exact_match_longer }) =>
      `Trained on words of at most ${max_len} random letters. It reverses ${percent(exact_match)} of other words of such ` +
      `lengths, but only ${percent(exact_match_longer)} of those with 1 to 5 letters more, as it has never seen their positions.`,
    pattern: (weights) => {
      const { src, tgt_in, hidden } = state;
      const wrong = first_wrong(); // what should follow a wrong text is not known
      const known = Math.min(src.length, wrong < 0 ? Infinity : wrong + 1);
      const steps = weights.slice(0, known).map((row, t) => {
        const best = largest_first(row)[0];
        return { t, at: row[best] ? best : -1, goal: src.length - 1 - t };
      });
      const n = steps.length;
      const right = steps.filter(({ at, goal }) => at === goal);
      const which = wrong < 0 ? "here" : "up to the first letter that differs";
      const counted = n < 2 ? "" : `At ${right.length} of the ${n} steps ${which} the largest weight is on the letter that ` +
        "has to be written";
      if (right.length === n) {
        return counted && `${counted}${n < src.length ? "." : ", from the last letter to the first: a diagonal."}`;
      }
      const begin = counted && `${counted}. `;
      const found = right.find(({ t, goal }) => origin(t) === "model" && tgt_in[t + 1] !== src[goal]);
      if (found) {
        return `${begin}Step ${found.t + 1} looks most at ${told_source(found.goal)}, as it should, and yet writes ` +
          `${told_written(found.t)}: where a step looks does not alone decide what it writes.`;
      }
      const other = steps.find(({ at, goal }) => at !== goal);
      if (!other) return begin.trim();
      const { t, at, goal } = other;
      if (hidden.includes(goal)) return `${begin}Step ${t + 1} cannot look at ${told_source(goal)}, which is hidden.`;
      return `${begin}Step ${t + 1} should look at ${told_source(goal)}, and looks most at ${told_source(at)}.`;
    },
  },
  "en-fr": {
    Vocabulary: Subwords,
    ends: [EOS],
    most: 40,
    limit: (n) => Math.min(n + 50, 80),
    title: "An English sentence of yours",
    hint: "It knows what is in its training data, captions of photographs: people, dogs, outdoors.",
    known: ["A man plays the guitar.", "Two dogs run on the beach."],
    wanted: "an English sentence",
    skill: ({ steps, n_sentences, bleu_lower, n_test, n_exact }) =>
      `Trained for ${count(steps)} steps on the ${count(n_sentences)} sentences of Multi30k, which describe pictures. Of ` +
      `the ${count(n_test)} sentences of the test text of 2016, which it has never seen, it translates ${n_exact} exactly ` +
      `as the data set does; greedy decoding reaches BLEU ${bleu_lower} of 100 (lower-cased; BLEU counts ` +
      `the words and groups of words that are also in the translation of the data set). It is small and often wrong, and for ` +
      "text of other kinds it is of no use.",
    pattern: (weights) => swaps(weights).map(({ t, s }) =>
      `Two words change places: ${told_step(t - 1)} looks at ${told_source(s + 1)}, and ${told_step(t)}, the next one, ` +
      `at ${told_source(s)}.`).slice(0, 2).join(" ") +
      (swaps(weights).length ? " In French, an adjective often follows its noun." : ""),
  },
};

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
    encoder: encoded.layers.map((layer) => layer.attention.heads),
    decoder: decoded.layers.map((layer) => layer.attention.heads),
    memory: decoded.layers.map((layer) => layer.memory_attention.heads),
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

/**
 * Neighbouring words that are read in the opposite order: step t - 1 looks at source token s + 1, and step t at s.
 * @param {Matrix} weights (T, S)
 */
function swaps(weights) {
  const is_word = (ids, i, least) => // all of a word, not a part of one
    token(ids[i]).length >= least && /^[\p{L}-]+$/u.test(token(ids[i])) &&
    !(i + 1 < ids.length && token(ids[i + 1]).startsWith("·"));
  const looks = weights.map((row, t) => {
    const s = largest_first(row)[0];
    return row[s] >= 0.5 && has_written(t) && is_word(state.tgt_in, t + 1, 4) && is_word(state.src, s, 2) // not ‘de’
      ? s : -1;
  });
  return looks.map((s, t) => ({ t, s })).filter(({ t, s }) => t && s >= 0 && looks[t - 1] === s + 1);
}

// -- reading and changing the state -----------------------------------------------------------------------------------

const task = () => TASKS[state.name];
const limit = () => Math.min(task().limit(state.src.length), state.draw ? state.src.length + 15 : Infinity);
const is_finished = () => state.tgt_in.at(-1) === EOS || state.tgt_in.length > limit();
const hidden_now = () => String([...state.hidden].sort((a, b) => a - b));
/** Was any token written while other tokens were hidden, and would the model write others now? */
const is_stale = () => !state.is_own && state.seen.slice(1).some((hidden) => hidden !== hidden_now());
/** Was all of the target written while the tokens that are hidden now were hidden? */
const is_of_now = () => state.seen.slice(1).every((hidden) => hidden === hidden_now());
const read_tokens = () => (state.tgt_in.at(-1) === EOS ? state.tgt_in.slice(0, -1) : state.tgt_in);

function choose_model(name) {
  const { model } = chosen(name).content;
  Object.assign(state, { name, tgt_in: [BOS], seen: [""], kind: "memory", side: "target", layer: model.n_layers - 1, head: 0 });
}

/**
 * Read a text and write all of its output.
 * @param {string} text
 * @returns {string} what is not taken of it; nothing changes if that is all
 */
function choose_text(text) {
  const src = source_of(state.name, text);
  const { most, ends, wanted, left_out } = task();
  if (!src.length) return `Type ${wanted}: the page still shows the last source.`;
  const is_long = src.length > most + ends.length;
  const unknown = chosen(state.name).vocabulary.unknown?.(text) ?? [];
  Object.assign(state, { text, src: is_long ? [...src.slice(0, most), ...ends] : src, hidden: [], tgt_in: [BOS], seen: [""] });
  take_all();
  return [
    is_long && `Only the first ${most} tokens are taken.`,
    left_out?.test(text) && "Only the letters from a to z are taken.",
    unknown.length && `It does not know ${unknown.length === 1 ? "the character" : "the characters"} ` +
      `${unknown.slice(0, 8).join(" ")}${unknown.length > 8 ? " …" : ""}; ` +
      `${unknown.length === 1 ? "it" : "each run of them"} becomes ‘<unk>’.`,
  ].filter(Boolean).join(" ");
}

/** Change the target, and look at its last step. @param {boolean} is_forced whether the reader chose its last token */
function write(tgt_in, is_forced = false) {
  const n = tgt_in.findIndex((id, t) => id !== state.tgt_in[t]);
  state.seen = tgt_in.map((_, t) => (n < 0 || t < n ? state.seen[t] : undefined) ?? hidden_now());
  state.forced = state.forced.filter((t) => t < (n < 0 ? tgt_in.length : n));
  if (is_forced) state.forced.push(tgt_in.length - 1);
  state.tgt_in = tgt_in;
  const step = read_tokens().length - 1;
  choose_step(step, has_written(step) ? "the last one" : "which is the next to write");
  show();
}

/** Write n tokens, or as many as are missing. */
function take(n) {
  const { model } = chosen(state.name);
  const keep = state.src.map((_, s) => !state.hidden.includes(s));
  const { memory } = model.encode(state.src, keep);
  state.seen.length = state.tgt_in.length;
  state.forced = state.forced.filter((t) => t < state.tgt_in.length);
  for (; n > 0 && !is_finished(); n--) {
    const [logits] = model.logits([model.decode(memory, state.tgt_in, keep).x.at(-1)]);
    state.tgt_in.push(state.draw ? sample(logits, state.temperature) : greedy(logits));
    state.seen.push(hidden_now());
  }
}

function choose_step(step, why = "which you selected") {
  Object.assign(state, { step, why, row: undefined, key: undefined });
}

/** Select a step, which a list, a picture or a table shows. @param {string} selector what has the focus afterwards */
function select(step, selector) {
  choose_step(step);
  show();
  document.querySelector(selector).focus({ preventScroll: true });
}

/** Write all tokens, and look at the most telling step. */
function take_all() {
  if (is_finished()) state.tgt_in = [BOS];
  take(Infinity);
  choose_step(...telling_step());
  show();
}

/**
 * The first wrong step; else one where words change places; else that of the longest token that looks at one token.
 * @returns {[number, string]} the step, and why
 */
function telling_step() {
  if (first_wrong() >= 0) { // the text may still be right after a token that leaves the path
    const goal = [...chosen(state.name).vocabulary.encode(wanted()), EOS];
    const wrong = goal.findIndex((id, t) => id !== state.tgt_in[t + 1]);
    return [wrong, `because its token is the first that differs: ${whose()} goes on with ${told(goal[wrong])}`];
  }
  const { heads, decoded } = trace(state.name, state.src, read_tokens(), state.hidden);
  const weights = mean_of(heads.memory.at(-1));
  const is_sure = (t) => shares_at(decoded.logits[t])[state.tgt_in[t + 1]] >= UNSURE;
  const clear = weights.map((row, t) => (Math.max(...row) < 0.5 || !has_written(t) || state.tgt_in[t + 1] === EOS || !is_sure(t)
    ? 0 : token(state.tgt_in[t + 1]).length));
  const swap = swaps(weights)[0];
  if (swap) return [swap.t, "because here two words change places"];
  const peak = Math.max(...clear);
  return peak >= 3 ? [clear.indexOf(peak), "as a clear example"] : [0, "which is the first"];
}

/** The probabilities of all tokens. @param {number[]} logits (V) */
function shares_at(logits, temperature = 1) {
  return softmax(logits.map((logit) => logit / temperature));
}

// -- tokens in texts --------------------------------------------------------------------------------------------------

const token = (id) => chosen(state.name).vocabulary.shown(id);

/** A decoded text, in which unknown characters have the name of their token. */
const named = (text) => text.replaceAll("⁇", SPECIAL[UNKNOWN]);
/** A token in a sentence. */
const told = (id) => `‘${token(id)}’`;
const told_shares = (ids, shares, n) => // those that are not 0.00
  largest_first(shares).slice(0, n).filter((i, rank) => !rank || shares[i] >= 0.005)
    .map((i) => `${told(ids[i])} ${number(shares[i], 2)}`).join(", ");
const has_written = (t) => t + 1 < state.tgt_in.length; // the last step may not
/** The steps, each by the token that it reads last and the one that it writes. */
const step_names = () => read_tokens().map((id, t) => `${token(id)} → ${has_written(t) ? token(state.tgt_in[t + 1]) : "?"}`);
const told_written = (t) => (has_written(t) ? told(state.tgt_in[t + 1]) : "the next token");

/** A token of the source in a sentence, with its place among its equals. */
function told_source(s) {
  const equals = state.src.flatMap((id, i) => (id === state.src[s] ? [i] : []));
  const nth = equals.indexOf(s) + 1;
  return equals.length === 1 ? told(state.src[s]) : `the ${nth}${["st", "nd", "rd"][nth - 1] ?? "th"} ${told(state.src[s])}`;
}

/** The hidden tokens in a sentence. */
function told_hidden() {
  const { hidden, src } = state;
  if (hidden.length === src.length) return "all source tokens";
  return hidden.length > 4 ? `${hidden.length} source tokens` : hidden.map(told_source).join(", ");
}

/**
 * Who decided what follows step t: "model" (it would write it now), "reader", "earlier" (the model, while other tokens were
 * hidden), "chance" (a draw), or undefined if nothing follows.
 */
function origin(t) {
  if (!has_written(t)) return undefined;
  if (state.forced.includes(t + 1)) return "reader";
  if (state.tgt_in[t + 1] === state.best[t]) return "model";
  return state.seen[t + 1] === hidden_now() ? "chance" : "earlier";
}

/** A step that has written, by what follows it. */
const told_step = (t) => `the step ${origin(t) === "reader" ? "at which you chose" : "that wrote"} ${told_written(t)}`;

/** What a step writes, as the end of a sentence. */
function told_writing(t) {
  const [written, best] = [told_written(t), told(state.best[t])];
  return {
    model: `and writes ${written}`,
    reader: `and would write ${best}. You chose ${best === written ? "the same" : `${written} instead`}`,
    earlier: `and would now write ${best}. ${written} was written before you changed what is hidden`,
    chance: `and gives ${best} the highest probability. ${written} was drawn at random`,
  }[origin(t)] ?? `and has not written yet: ${best} is the most probable`;
}
