"use strict";
// Experiments to begin with: each sets the state, asks what will happen, does it, and says what is seen.

const FIRST = "A dog runs outside with a yellow toy.";
const said = () => `“${named(chosen(state.name).vocabulary.decode(state.tgt_in))}”`;
const step_of = (name) => state.tgt_in.map(token).indexOf(name) - 1; // the step that wrote a token
const source_place = (name) => state.src.map(token).indexOf(name);
/** How much of its attention a step gives to a source token. */
function share_of(t, name) {
  const { heads } = trace(state.name, state.src, read_tokens(), state.hidden);
  return percent(mean_of(heads.memory.at(-1))[t][source_place(name)]);
}
const id_of = (name) => chosen(state.name).content.tokens.findIndex((_, id) => token(id) === name);

const TRIES = [
  {
    title: "Word order", model: "en-fr", text: FIRST,
    ask: () => {
      const t = step_of("jouet");
      if (t < 0) {
        return `${state.tgt_in.length === 1 ? "Nothing is written yet. " : ""}Press Next token until ‘jouet’ (toy) is ` +
          "written. Where will the step after it look?";
      }
      return has_written(t + 1) ? `The step after ‘jouet’ (toy) wrote ${told_written(t + 1)}. Where did it look?`
        : "‘jouet’ (toy) is written, and the step after it is selected. Where does it look?";
    },
    set: () => write([BOS]),
    act: take_all,
    told: () => "It looks back. ‘jouet’ was written by a step that looks at ‘toy’ " +
      `(${share_of(step_of("jouet"), "toy")}), and ‘jaune’ by one that looks at ‘yellow’ ` +
      `(${share_of(step_of("jaune"), "yellow")}), one word to the left: in French this adjective follows its noun.`,
  },
  {
    title: "Hide a word", model: "en-fr", text: FIRST,
    ask: "Now ‘yellow’ will be hidden, and the sentence written again. Will there be another colour, or none?",
    set: () => {},
    act: () => {
      state.hidden = [source_place("yellow")];
      write([BOS]);
      take_all();
    },
    told: () => `None: ${said()} The step after ‘jouet’ finds no colour to read, and ends the sentence.`,
  },
  {
    title: "Force a word", model: "en-fr", text: FIRST,
    ask: "The next token would be ‘jaune’. We write ‘rouge’ (red) instead. Where will this step look, and what comes next?",
    set: () => write(state.tgt_in.slice(0, step_of("jouet") + 2)),
    act: () => {
      write([...state.tgt_in, id_of("rouge")], true);
      take(Infinity);
      state.step = step_of("rouge");
      show();
    },
    told: () => `The step that wrote ‘rouge’ still looks at ‘yellow’ (${share_of(state.step, "yellow")}): a step looks before ` +
      "its token is chosen. Then the decoder reads ‘rouge’ like a word of its own, and ends the sentence. It cannot correct " +
      "what is written.",
  },
  {
    title: "Sure and wrong", model: "en-fr", text: "A cat and a dog.",
    ask: "This small model has no token for ‘cat’: it reads c·at. What will it write for it, and how sure will it be?",
    set: () => write([BOS]),
    act: () => {
      take_all();
      state.step = step_of("chien");
      show();
    },
    told: () => `${said()} It writes ‘chien’ (dog) for the cat, with ` +
      `${$("target").children[state.step + 1].querySelector("small").textContent}. A high probability says that the model is ` +
      "sure, not that it is right.",
  },
  {
    title: "Too long", model: "reverse", text: "transformer",
    ask: "The words of the training had at most 10 letters; this one has 11. Will a word longer than any it was " +
      "trained on come out right?",
    set: () => write([BOS]),
    act: take_all,
    told: () => `No: one letter is skipped, one doubled, ${said()} instead of “${wanted()}”. The others come in the right ` +
      "order. The model has never read a word of this length.",
  },
];

let tried; // the one that is open: {i, key}; key is that of the state which its sentence describes
const key_of_state = () => JSON.stringify([state.name, state.text, state.tgt_in, state.hidden]);

function set_try({ model, text, set }) {
  Object.assign(state, { temperature: 1, draw: false });
  $("temperature").value = 1;
  $("draw").checked = false;
  if (state.name !== model) show_model(model);
  show_text(text);
  set();
}

/** Ask, or say what is seen. @param {boolean} is_seen */
function open_try(i, is_seen) {
  tried = undefined;
  set_try(TRIES[i]);
  if (is_seen) TRIES[i].act();
  tried = { i, key: is_seen ? key_of_state() : "", told: is_seen && TRIES[i].told() };
  show_try();
}

const question = (ask) => (typeof ask === "function" ? ask() : ask);

/** The question, the sentence while it is true, or nothing for another text. */
function show_try() {
  if (tried && (state.name !== TRIES[tried.i].model || state.text !== TRIES[tried.i].text)) tried = undefined;
  const is_seen = tried?.key === key_of_state();
  const text = tried ? (is_seen ? tried.told : question(TRIES[tried.i].ask)) : "";
  if ($("try-text").textContent !== text) $("try-text").textContent = text;
  $("try-see").hidden = !tried || is_seen;
  TRIES.forEach((_, i) => $(`try-${i}`).setAttribute("aria-pressed", String(tried?.i === i)));
}

TRIES.forEach(({ title }, i) => {
  const button = element("button", { type: "button", id: `try-${i}` }, `${i + 1}. ${title}`);
  button.addEventListener("click", () => open_try(i, false));
  document.querySelector("#tries .try-list").append(button);
});
$("try-see").addEventListener("click", () => {
  const { i } = tried;
  open_try(i, true);
  $(`try-${i}`).focus({ preventScroll: true });
});
