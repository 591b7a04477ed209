"use strict";
// The changes that break the model, what a reader can predict, and the sentences about what was measured.

const OUTCOMES = {
  learns: "It learns all the same: nearly every word is right.",
  partly: "It learns less: the loss falls, but not to 0, and many words are wrong.",
  useless: "The loss falls to nearly 0, and yet the words that it writes are wrong.",
  fails: "It does not learn: the loss stays high, or is no number.",
};

/** Which of them it was, by what was measured at the end and at the start. */
function outcome_of(end, start, nan) {
  if (nan || !(end.loss < 0.7 * start.loss)) return "fails";
  if (end.right >= 0.85) return "learns";
  return end.right < 0.1 && end.loss < 0.1 * start.loss ? "useless" : "partly";
}

const percent = (x) => `${Math.round(100 * x)} %`;
const norm = (x) => Math.sqrt(x.data.reduce((sum, value) => sum + value * value, 0));
const mean_of_rows = (x, f) => Array.from({ length: x.n }, (_, i) => f(x.data.subarray(i * x.m, (i + 1) * x.m), i)).reduce((a, b) => a + b) / x.n;

/**
 * Each change: its name, what it changes, and what one sees after training, from what `r` holds: the settings, `start`
 * and `end` (what was measured at the first and the last step), `at_start` and `at_end` (the trace of the word there),
 * `intact` and `mended` (at the start and at the end with nothing broken), and `losses`.
 */
const BREAKS = {
  mask: {
    name: "no causal mask",
    change: "In the decoder, each place may now also attend to the letters after it. In training these are the letters that it has to write.",
    told({ end, at_end, mended, settings: { n_layers: N } }) {
      const weights = at_end.seen[`decoder.${N - 1}.attention.weights`];
      const after = mean_of_rows(weights, (row, i) => row.subarray((i % weights.m) + 1).reduce((a, b) => a + b, 0));
      return `${percent(Math.max(...end.shares))} of the cross-attention is in its place because in training the wanted letters are given; when the model writes by itself they are missing.
        Open “Self-attention, no mask”: ${percent(after)} of the weight lies to the right of the diagonal, on these letters. With the mask put back, the loss of your word goes from ${digits(at_end.loss)} to ${digits(mended.loss)}.`;
    },
  },
  scale: {
    name: "no 1/√K",
    change: "The scores q kᵀ are no longer divided by √K before the softmax. K = D/H is the width of a head.",
    told({ at_start, intact, outcome, settings: { n_layers: N, d_model: D, n_heads: H } }) {
      if (D === H) return "With heads of width K = 1, √K is 1, so nothing has changed. Choose fewer heads, or a larger width.";
      const key = `decoder.${N - 1}.memory_attention.weights`;
      const sharp = ({ seen }) => mean_of_rows(seen[key], (row) => Math.max(...row));
      return `K = D/H is ${D / H} here, so scores are √K = ${digits(Math.sqrt(D / H))} times too large${outcome === "learns" ? ", and Adam repairs so small a factor" : ""}. Before
        anything is learned the softmax is sharper: at step 0, the largest weight of a row of the cross-attention is ${percent(sharp(at_start))} on average,
        and ${percent(sharp(intact))} with 1/√K and the same parameters. With a large K the softmax starts near 0 and 1, where it passes almost no
        gradient: try D = 48 with one head.`;
    },
  },
  residual: {
    name: "no residual connection",
    change: "“Add & norm” becomes LN(f(x)): the input x of a sublayer is no longer added to its output.",
    told({ at_start, intact }) {
      const [now, before] = [at_start, intact].map(({ seen }) => norm(seen["source_embedding.dy"]));
      return `Position and letter must now pass through every sublayer. Move the slider to step 0 and switch to gradients: the gradient that comes to
        “Letters read” has the length ${digits(now)}, with the residual connections and the same parameters ${digits(before)}.`;
    },
  },
  positions: {
    name: "no positions",
    change: "The embeddings are no longer told where in the word a letter stands.",
    told({ end, settings: { length } }) {
      const share = Math.max(...end.shares);
      return `The encoder knows which letters there are, and not where. Look at the cross-attention: the weight of the wanted letter
        is ${percent(share)} on average in the best head; even weights would give ${percent(1 / length)}.`;
    },
  },
  merge: {
    name: "heads merged in the wrong order",
    change: "The heads (H, T, K) are laid out as (T, D) without transposing them first: a reshape where a transpose is needed. No error is raised.",
    told({ settings: { n_heads: H, length } }) {
      if (H === 1) return "With one head both orders are the same, so nothing has changed. Choose two heads or more.";
      return `Row t of the merged heads now holds numbers of other places: open “Masked self-attention” and follow a number in the first row of “merged heads”
        on towards the parameters: it comes from the weights of other rows too. So the mask no longer holds: what is written first reads later letters. And the order depends on
        how many letters there are: in training always ${length + 1} places, when it writes first 1, then 2, …`;
    },
  },
  memory: {
    name: "a forgotten dy",
    change: "In the backward pass, the line dmemory += … is left out: what the cross-attention knows about the encoder is not passed on. The forward pass is right.",
    told({ at_end, settings: { n_layers: N } }) {
      const last = `encoder.${N - 1}.feed_forward_norm`;
      const forgotten = norm(at_end.seen[`${last}.dy`]) === 0;
      return `${forgotten ? "Every gradient of the encoder is exactly 0: switch to gradients, and its half of the figure has no colour. " : ""}No parameter there has
        changed since step 0; the decoder has learned to read an encoder of random numbers. Nothing raises an error. Choose a number in the last
        box of the encoder: what arrives there is not 0, and the slope that is measured is not 0 either. That is how such a mistake is found.`;
    },
  },
  rate: {
    name: "learning rate × 100",
    change: "Each step of Adam is a hundred times as long.",
    told({ end, start, nan, losses, settings: { n_layers: N }, at_end }) {
      const key = `decoder.${N - 1}.feed_forward.relu`;
      const dead = at_end.seen[key].data.filter((x) => x === 0).length / at_end.seen[key].data.length;
      return `The loss was ${digits(start.loss)} at the start, ${digits(losses.reduce((a, b) => Math.max(a, b), 0))} at its highest, and is ${digits(end.loss)} now.
        Each step goes far past the place that the gradient speaks of. Open “Feed-forward”: ${percent(dead)} of its numbers after relu are 0.
        ${nan ? "" : "Nothing became infinite: layer normalisation brings each row back to its length, and Adam’s steps have a fixed size."}`;
    },
  },
};

/** The paragraph about a training with a change: the prediction, what happened, where one sees it. */
function verdict(tiny, name, guess, run) {
  const { start, end, nan, first_params, last_params, word, settings } = run;
  const outcome = outcome_of(end, start, nan);
  const said = guess ? `You expected: “${OUTCOMES[guess]}” ` : "";
  const judged = !guess ? OUTCOMES[outcome] : guess === outcome ? "That is what happened." : `What happened: “${OUTCOMES[outcome]}”`;
  const numbers = nan
    ? `At step ${nan.step} a number of ${nan.where} was no longer finite, and the training was stopped.`
    : `After ${run.step} steps the loss of new words is ${digits(end.loss)} (at the start ${digits(start.loss)}), and ${percent(end.right)} of the words that it writes by itself are right.`;
  const traces = {
    at_start: trace(tiny, first_params, word, settings), at_end: trace(tiny, last_params, word, settings),
    intact: trace(tiny, first_params, word, { ...settings, broken: "" }), mended: trace(tiny, last_params, word, { ...settings, broken: "" }),
  };
  return [said + judged, numbers, BREAKS[name].told({ ...run, ...traces, outcome })].map((text) => text.replace(/\s+/g, " "));
}
