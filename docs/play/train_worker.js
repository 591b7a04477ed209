"use strict";
// Training, in short slices, so that it can be paused: `receive` takes messages, `post` is called with what was done.
// A worker runs it; where a browser has none, the page itself does. Both give the same numbers.

function training(tiny, post) {
  const [SAVE_EVERY, MEASURE_EVERY, SLICE] = [5, 25, 25]; // steps, steps, milliseconds
  let settings, params, means, random, step, until, losses;
  let is_running = false;

  function begin(chosen) {
    settings = chosen;
    random = tiny.generator(settings.seed);
    params = tiny.init(random, settings);
    [means, step, until, losses] = [{}, 0, 0, []];
    report(true);
  }

  function report(measured, paused = false) {
    post({ step, losses, params: structuredClone(params), measured: measured && tiny.measure(params, settings), paused, run: settings.run });
    losses = [];
  }

  function one_step() {
    const words = tiny.random_words(random, settings.batch, settings);
    const [src, tgt] = tiny.batch_of(words, settings.task);
    const [loss, grads] = tiny.loss_and_grad(params, src, tgt, settings);
    let sum = loss;
    tiny.for_each_array((path, g) => g.data.forEach((x) => { sum += x; }), grads);
    if (!Number.isFinite(sum)) {
      until = step;
      return post({ nan: { step: step + 1, key: first_not_finite(src, tgt) }, run: settings.run });
    }
    step += 1;
    tiny.adam_step(params, grads, means, step, tiny.learning_rate(step, settings));
    losses.push(loss);
    if (step % SAVE_EVERY === 0 || step === until) report(step % MEASURE_EVERY === 0 || step === until);
  }

  function first_not_finite(src, tgt) {
    let first;
    const see = (key, x) => { if (!first && !x.data.every(Number.isFinite)) first = key; };
    tiny.for_each_array((path, x) => see(path, x), params);
    tiny.loss_and_grad(params, src, tgt, settings, see);
    return first ?? "the gradients of the parameters";
  }

  function slice() {
    const end = Date.now() + SLICE;
    while (step < until && Date.now() < end) one_step();
    is_running = step < until;
    if (is_running) setTimeout(slice, 0);
  }

  return function receive({ start, train, pause, set }) {
    if (start) begin(start);
    if (set) tiny.for_each_array((path, x) => { if (path === set.path) x.data.fill(set.value); }, params); // for tests of NaN
    if (pause) {
      until = step;
      report(true, true);
    }
    if (train) {
      until = (is_running ? until : step) + train;
      if (!is_running) slice();
    }
  };
}

/** A training that tells `hear` what it did. Returns { send, has_worker() }. */
function start_training(tiny, hear) {
  const sent = [];
  let [worker, send] = [null, null];
  const in_page = () => {
    worker = null;
    send = training(tiny, hear);
    sent.forEach((message) => send(message));
  };
  try {
    const text = `"use strict"; ${tiny_transformer}\n${training}
      const receive = training(tiny_transformer(), (message) => postMessage(message));
      onmessage = (event) => receive(event.data);`;
    worker = new Worker(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
    let heard = false;
    worker.onmessage = (event) => {
      heard = true;
      hear(event.data);
    };
    worker.onerror = (event) => { // a page may be forbidden to start one, which is only noticed later
      event.preventDefault();
      if (!heard) in_page();
    };
    send = (message) => worker.postMessage(message);
  } catch {
    in_page();
  }
  return {
    send(message) {
      sent.push(message);
      send(message);
    },
    has_worker: () => worker !== null,
  };
}
