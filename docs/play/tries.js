"use strict";
// Experiments to begin with: each sets the state, asks what will happen, does it, says what is seen, and points to it.

const FIRST = "A dog runs outside with a yellow toy.";
const said = () => `“${named(chosen(state.name).vocabulary.decode(state.tgt_in))}”`;
const step_of = (name) => state.tgt_in.map(token).indexOf(name) - 1; // the step that a token follows
const source_place = (name) => state.src.map(token).indexOf(name);
const mean_now = () => mean_of(trace(state.name, state.src, read_tokens(), state.hidden).heads.memory.at(-1));
/** How much of its attention a step gives to a source token. */
const share_of = (t, name) => percent(mean_now()[t][source_place(name)]);
const id_of = (name) => chosen(state.name).content.tokens.findIndex((_, id) => token(id) === name);

const COLOURS = ["jaune", "rouge", "bleu", "vert", "noir", "blanc", "rose", "gris", "orange", "marron"];
/** The probabilities at a step of what is shown. */
const shares_now = (t) => shares_at(trace(state.name, state.src, read_tokens(), state.hidden).decoded.logits[t]);
/** The probability of a token at a step, as a text. */
const chance_of = (t, name) => number(shares_now(t)[id_of(name)], 2);

// Each has guesses, the place of the right one, and in `far` the numbers that tell how far off a guess is.
const TRIES = [
  {
    title: "Word order", model: "en-fr", text: "A small black dog is running.", is_covered: true,
    ask: "‘Petit’ (small) is written. In French, ‘chien’ (dog) comes next, and ‘noir’ (black) after it. Where does each of these " +
      "two steps look?",
    guesses: ["‘chien’ at ‘black’, ‘noir’ at ‘dog’", "‘chien’ at ‘dog’, ‘noir’ at ‘black’", "each at both words alike"],
    right: 1,
    far: () => {
      const of_step = (name, [first, second]) => `‘${name}’ gives ‘${first}’ ${share_of(step_of(name), first)} and ‘${second}’ ` +
        share_of(step_of(name), second);
      return `the step that wrote ${of_step("chien", ["dog", "black"])}, the one that wrote ${of_step("noir", ["black", "dog"])}`;
    },
    set: () => write(state.tgt_in.slice(0, step_of("petit") + 2)),
    act: take_all,
    told: () => "The first passes over ‘black’: the step that wrote ‘chien’ looks at ‘dog’ " +
      `(${share_of(step_of("chien"), "dog")}), and the one that wrote ‘noir’ goes back to ‘black’ ` +
      `(${share_of(step_of("noir"), "black")}). Most French adjectives follow their noun; ‘petit’ is one of the few that do not.`,
    cells: () => [[step_of("chien"), source_place("dog")], [step_of("noir"), source_place("black")]],
  },
  {
    title: "Hide a word", model: "en-fr", text: FIRST,
    ask: "If ‘yellow’ is hidden and the sentence is written again, will there be another colour, or none?",
    guesses: ["another colour", "no colour", "‘jaune’ all the same"],
    right: 1,
    far: () => {
      const shares = shares_now(state.step);
      const [colour] = COLOURS.map(id_of).filter((id) => id >= 0).sort((a, b) => shares[b] - shares[a]);
      const next = state.tgt_in[state.step + 1];
      return `after ‘jouet’, ${told(next)} has a probability of ${number(shares[next], 2)}, and the most probable colour, ` +
        `${told(colour)}, has ${number(shares[colour], 2)}`;
    },
    set: () => {},
    act: () => {
      state.hidden = [source_place("yellow")];
      write([BOS]);
      take_all();
      choose_step(step_of("jouet") + 1, "where the colour was");
    },
    told: () => `None: ${said()} The step after ‘jouet’ finds no colour to read, and ends the sentence.`,
    cells: () => [[step_of("jouet") + 1, source_place("yellow")]],
  },
  {
    title: "Force a word", model: "en-fr", text: FIRST, is_covered: true,
    ask: "After ‘jouet’ the model goes on with ‘jaune’ (yellow). If ‘rouge’ (red) is written instead, where will this step " +
      "look, and what comes next?",
    guesses: ["at ‘yellow’, and the sentence ends", "at ‘yellow’, and ‘jaune’ follows", "elsewhere: ‘red’ is not in the source"],
    right: 0,
    far: () => `‘yellow’ has ${share_of(state.step, "yellow")} of the attention; after ‘rouge’, ‘.’ has a probability of ` +
      `${chance_of(state.step + 1, ".")}, and ‘jaune’ has ${chance_of(state.step + 1, "jaune")}`,
    set: () => write(state.tgt_in.slice(0, step_of("jouet") + 2)),
    act: () => {
      write([...state.tgt_in, id_of("rouge")], true);
      take(Infinity);
      choose_step(step_of("rouge"), "whose token was not its own choice");
    },
    told: () => `The step at which ‘rouge’ was chosen still looks at ‘yellow’ (${share_of(state.step, "yellow")}): a step looks ` +
      "before its token is chosen. Then the decoder reads ‘rouge’ as if it had chosen it itself, and ends the sentence. It cannot " +
      "correct what is written.",
    cells: () => [[step_of("rouge"), source_place("yellow")]],
  },
  {
    title: "Sure and wrong", model: "en-fr", text: "A cat and a dog.",
    ask: "This small model has no token for ‘cat’: it reads c·at. What will it write for it, and how sure will it be?",
    guesses: ["‘chat’ (cat)", "another word, p below 0.5", "another word, p from 0.5 to 0.9", "another word, p above 0.9"],
    right: 3,
    far: (guess) => {
      const step = step_of("chien");
      const p = shares_now(step)[id_of("chien")];
      const too_low = [0, p - 0.5, p - 0.9, 0][guess];
      return `‘chien’ has a probability of ${number(p, 2)}, and ‘ch’, with which ‘chat’ begins, has ${chance_of(step, "ch")}` +
        (too_low ? `; your guess is too low by at least ${number(too_low, 2)}` : "");
    },
    set: () => write([BOS]),
    act: take_all,
    told: () => `${said()} It writes ‘chien’ (dog) for the cat, with a probability of ` +
      `${number(shares_at(trace(state.name, state.src, read_tokens()).decoded.logits[step_of("chien")])[id_of("chien")], 2)}: ` +
      `the step that should read c·at looks at ‘dog’ (${share_of(step_of("chien"), "dog")}). A high probability says that the ` +
      "model is sure, not that it is right.",
    cells: () => [[step_of("chien"), source_place("dog")]],
  },
  {
    title: "Too long", model: "reverse", text: "transformer",
    ask: "The words of the training had at most 10 letters; this one has 11. Will a word longer than any it was " +
      "trained on come out right?",
    guesses: ["yes, all 11 letters", "no, but at most 3 letters are wrong", "no, most letters are wrong"],
    right: 1,
    far: () => {
      const text = chosen(state.name).vocabulary.decode(state.tgt_in);
      return `it takes ${changes([...text], [...wanted()], false).length} changes of letters to make it right`;
    },
    set: () => write([BOS]),
    act: take_all,
    told: () => {
      const [[, best]] = TRIES[4].cells();
      return `No: one letter is skipped, one doubled, ${said()} instead of “${wanted()}”. The first step looks at ` +
        `${told_source(best)} (${percent(mean_now()[0][best])}), and not at the last letter. The model has never read a word ` +
        "of this length.";
    },
    cells: () => [[0, largest_first(mean_now()[0])[0]]],
  },
];

let tried; // the one that is open: {i}, and if it is seen {key, result, judged, told, cells}; key is that of the state which they describe
const first_guesses = new Map(); // number of an experiment -> whether the reader's first guess was right
const key_of_state = () => JSON.stringify([state.name, state.text, state.tgt_in, state.hidden]);
const is_seen = () => tried?.key === key_of_state();
/** The cells of the picture of which the answer speaks. */
const tried_cells = () => (is_seen() ? tried.cells : []);

function set_try({ model, text, set }) {
  Object.assign(state, { temperature: 1, draw: false });
  $("temperature").value = 1;
  $("draw").checked = false;
  if (state.name !== model) show_model(model);
  show_text(text);
  set();
}

/** Ask. */
function open_try(i) {
  tried = undefined;
  set_try(TRIES[i]);
  tried = { i };
  show_try();
}

/** Bring the question, and as much as possible of what stands below it, into sight. */
function see_question() {
  const { top } = $("tries").getBoundingClientRect();
  if ($("picture").getBoundingClientRect().bottom > innerHeight) scrollBy(0, top - 8);
}

/**
 * Whether a guess was right, and by how much.
 * @param {number} guess its place among the guesses of the experiment
 * @returns {[string, string]} the result, and the numbers
 */
function judge(i, guess) {
  const { guesses, right, far } = TRIES[i];
  const is_right = guess === right;
  if (!first_guesses.has(i)) first_guesses.set(i, is_right);
  const n_right = [...first_guesses.values()].filter(Boolean).length;
  const result = is_right ? "✓ Your guess was right:" : `✗ You guessed “${guesses[guess]}”, and it is “${guesses[right]}”:`;
  const score = first_guesses.size > 1 ? ` Right so far: ${n_right} of ${first_guesses.size}.` : "";
  return [result, `${far(guess)}.${score}`];
}

/** Say what is seen, and outline it. @param {number} [guess] what the reader guessed */
function answer_try(guess) {
  const { i } = tried;
  open_try(i);
  TRIES[i].act();
  const [result, judged] = guess === undefined ? ["", ""] : judge(i, guess);
  tried = { i, key: key_of_state(), result, judged, told: TRIES[i].told(), cells: TRIES[i].cells() };
  show();
  const last = TRIES.length - 1;
  $(i < last ? "try-next" : `try-${last}`).focus({ preventScroll: true });
  const top = (id) => $(id).getBoundingClientRect().top - 8;
  const bottom = $("picture").getBoundingClientRect().bottom;
  const firsts = ["tries", "try-text", "try-result", "try-answer"];
  const first = firsts.find((id) => bottom - top(id) < innerHeight); // else the answer would leave the screen
  if (first && (bottom > innerHeight || top(first) < 0)) scrollBy(0, top(first));
}

/** Bring the outlined cells into sight. */
function point() {
  $("picture").scrollIntoView({ block: "nearest" });
}

/** The question and, while it is true, the answer; nothing for another text. */
function show_try() {
  if (tried && (state.name !== TRIES[tried.i].model || state.text !== TRIES[tried.i].text)) tried = undefined;
  const seen = is_seen();
  const { ask, is_covered } = TRIES[tried?.i] ?? {};
  const covers = Boolean(is_covered && !seen); // the answer would be there to read
  const asked = tried ? `${ask}${covers ? " The picture is covered until you press a button." : ""}` : "";
  const [result, judged, answer] = seen ? [tried.result, tried.judged, tried.told] : ["", "", ""];
  const texts = { "try-text": asked, "try-result": result, "try-judged": judged, "try-answer": answer };
  for (const [id, text] of Object.entries(texts)) if ($(id).textContent !== text) $(id).textContent = text;
  $("try-see").hidden = $("try-guess").hidden = !tried || seen;
  show_guesses();
  for (const id of ["step-text", "picture", "picture-text"]) {
    $(id).classList.toggle("covered", covers);
    $(id).inert = covers;
  }
  $("try-show").hidden = !seen;
  const next = seen ? TRIES[tried.i + 1] : undefined;
  $("try-next").hidden = !next;
  if (next) $("try-next").textContent = `Next experiment: ${tried.i + 2}. ${next.title}`;
  TRIES.forEach((_, i) => $(`try-${i}`).setAttribute("aria-pressed", String(tried?.i === i)));
}

/** A button for each guess. They are made anew only for another experiment, so that the focus stays. */
function show_guesses() {
  const [list, of] = [$("try-guess"), String(tried?.i)];
  if (list.dataset.of === of) return;
  list.dataset.of = of;
  const guesses = TRIES[tried?.i]?.guesses ?? [];
  list.replaceChildren(element("b", {}, "Your guess:"), ...guesses.map((text, guess) => pressable(() => answer_try(guess), {}, text)));
}

TRIES.forEach(({ title }, i) => {
  document.querySelector("#tries .try-list").append(pressable(() => {
    open_try(i);
    see_question();
  }, { id: `try-${i}` }, `${i + 1}. ${title}`));
});
$("try-see").addEventListener("click", () => answer_try());
$("try-next").addEventListener("click", () => {
  open_try(tried.i + 1);
  see_question();
  $("try-guess").querySelector("button").focus({ preventScroll: true });
});
$("try-show").addEventListener("click", () => {
  point();
  $("picture").querySelector("svg").focus({ preventScroll: true });
});
