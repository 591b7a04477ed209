"use strict";
// A trained model at work, and the state of the page. A step of the decoder reads the target so far and writes the next token.

const models = {}; // name -> {model, vocabulary, content}, made when it is first used
const state = {
  name: "en-fr", text: "", src: [], tgt_in: [BOS],
  hidden: [], // places of the source that attention does not see
  step: 0, // the one that is looked at: it reads tgt_in[0 ... step] and writes tgt_in[step + 1]
  temperature: 1, draw: false, // whether tokens are drawn at random
  kind: "memory", side: "target", layer: 0, head: 0, // the part that is shown, and one of its heads
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
    title: "A word of yours",
    wanted: "at least one letter from a to z",
    left_out: /[^a-z]/i,
    skill: ({ max_len, exact_match, exact_match_longer }) =>
      `Trained on words of at most ${max_len} random letters. It reverses ${percent(exact_match)} of other words of such ` +
      `lengths, but only ${percent(exact_match_longer)} of longer ones, as it has never seen their positions.`,
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
    title: "An English sentence of yours",
    wanted: "an English sentence",
    skill: ({ steps, n_sentences, bleu_lower, n_test, n_exact }) =>
      `Trained for ${count(steps)} steps on the ${count(n_sentences)} sentences of Multi30k, which describe pictures. Of ` +
      `the ${count(n_test)} sentences of the test text of 2016, which it has never seen, it translates ${n_exact} exactly ` +
      `as a person did; greedy decoding reaches BLEU ${bleu_lower} (lower-cased). It is small and often wrong, and for ` +
      "text of other kinds it is of no use.",
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
  const { model } = chosen(name).content;
  Object.assign(state, { name, tgt_in: [BOS], kind: "memory", side: "target", layer: model.n_layers - 1, head: 0 });
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
  Object.assign(state, { text, src: is_long ? [...src.slice(0, most), ...ends] : src, hidden: [], tgt_in: [BOS] });
  take_all();
  return [
    is_long && `Only the first ${most} tokens are taken.`,
    left_out?.test(text) && "Only the letters from a to z are taken.",
    unknown.length && `It does not know ${unknown.length === 1 ? "the character" : "the characters"} ` +
      `${unknown.slice(0, 8).join(" ")}${unknown.length > 8 ? " …" : ""}; each run of them becomes ‘<unk>’.`,
  ].filter(Boolean).join(" ");
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

/** Write all tokens, and look at the most telling step. */
function take_all() {
  if (is_finished()) state.tgt_in = [BOS];
  take(Infinity);
  state.step = telling_step();
  show();
}

/** The first wrong step; else one that looks back; else that of the longest token among those that look at one token. */
function telling_step() {
  const wrong = first_wrong();
  if (wrong >= 0) return wrong;
  const weights = mean_of(trace(state.name, state.src, read_tokens(), state.hidden).heads.memory.at(-1));
  const clear = weights.map((row, t) =>
    (Math.max(...row) < 0.5 || !has_written(t) ? 0 : token(state.tgt_in[t + 1]).length));
  return steps_back(weights)[0]?.t ?? clear.indexOf(Math.max(...clear));
}

/** The probabilities of all tokens at the temperature of the page. @param {number[]} logits (V) */
function shares_at(logits) {
  return softmax(logits.map((logit) => logit / state.temperature));
}

// -- tokens in texts --------------------------------------------------------------------------------------------------

const token = (id) => chosen(state.name).vocabulary.shown(id);

/** A token in a sentence. */
const told = (id) => `‘${token(id)}’`;
const told_shares = (ids, shares, n) => // those that are not 0.00
  largest_first(shares).slice(0, n).filter((i, rank) => !rank || shares[i] >= 0.005)
    .map((i) => `${told(ids[i])} ${number(shares[i], 2)}`).join(", ");
const has_written = (t) => t + 1 < state.tgt_in.length; // the last step may not
const told_written = (t) => (has_written(t) ? told(state.tgt_in[t + 1]) : "the next token");
