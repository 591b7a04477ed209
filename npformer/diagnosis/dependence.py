"""What an output depends on, found by a change of the input: exact, as what is masked changes no bit."""

import numpy as np

from npformer.diagnosis.finding import LIKELY


def repeatable(case):
    """Whether an output is finite, and the same again."""
    y = case.outputs(case.inputs)
    if not np.array_equal(y, case.outputs(case.inputs), equal_nan=True):
        yield "not repeatable", "the outputs for one batch differ between two calls"
    elif not np.isfinite(y).all():
        yield "not finite", "outputs are NaN or infinite"


def rows(case):
    """Whether an output is the same with other rows, and in another place among them."""
    if len(case.inputs[0]) == 1:
        raise ValueError("the batch has one row")
    others = [np.concatenate([np.roll(x[1:], 1, axis=1), x[:1]]) for x in case.inputs]
    own = case.outputs(case.inputs)[0]
    change = np.abs(case.outputs(others)[-1] - own).max()
    if change > 1e-4 * np.abs(own).max():  # sums may be rounded otherwise in another place
        yield "rows leak", f"the outputs of a row change by {change:.2g} with the other rows, or its place among them"


def tokens(case):
    """Which outputs depend on a token."""
    for which in ids_of(case):
        at, change = influence(case, which)
        if which == case.causal:
            distance = np.arange(change.shape[1]) - at[:, None]
            before = np.where(distance < 0, change, 0)
            k, t = np.unravel_index(before.argmax(), before.shape)
            if before.any():
                yield "later tokens leak", f"output {t} changes by {before.max():.2g} with the later token {at[k]}"
            elif not change[distance == 0].all():
                yield "input ignored", "outputs do not depend on the newest token"
            elif not change[distance > 0].any():
                seen = "outputs do not depend on any token before the newest one"
                yield "input ignored", f"{seen}; if the model is meant to see one token, this is no mistake", LIKELY
            else:
                yield from holes(at, change)
        elif (seen := change.reshape(len(at), -1).any(axis=1).mean()) < 0.5:
            yield "input ignored", f"only {seen:.0%} of the tokens of batch[{which}] change an output"
        share = change.reshape(len(at), -1).max(axis=1).mean() / case.outputs(case.longest_row(which)[0]).std()
        if case.is_new and share < (0.3 if which == case.causal else 0.25 / at[-1]):  # 1.6, and 1.2 / n, are usual
            seen = f"another token of batch[{which}] changes outputs by only {share:.1%} of their standard deviation"
            yield "input ignored", f"{seen}, as if positions were much larger than embeddings", LIKELY


def holes(at, change):
    """Whether some tokens are seen by fewer of the outputs after them than others are, from one output to the next."""
    last = np.array([np.flatnonzero(x[: at[-1] + 1])[-1] for x in change])
    reach = last - at
    is_abrupt = change[np.arange(len(at)), last] > 2e-4 * change.max(axis=1)  # else it has faded
    for k in np.flatnonzero(is_abrupt & (reach < 0.75 * np.minimum(reach.max(), at[-1] - at)))[:1]:
        seen = f"token {at[k]} changes no output after {last[k]}, though another changes {reach.max()} after it"
        yield "input ignored", f"{seen}, as if positions and heads were mixed by a reshape without a transpose", LIKELY


def padding(case):
    """Whether more padding changes outputs."""
    if case.compute and case.pad_id is None:
        raise ValueError("the model has no pad_id")
    if len(case.inputs) > len(ids_of(case)):
        raise ValueError("a batch has more than ids, such as a mask that says what is padding")
    for which, ids in enumerate(case.inputs):
        longer = np.pad(ids, ((0, 0), (0, 3)), constant_values=case.pad_id)
        y, z = case.outputs(case.inputs), case.outputs([*case.inputs[:which], longer, *case.inputs[which + 1 :]])
        real = case.is_word(case.inputs[-1]) if case.by_position else slice(None)
        change = np.abs((z[:, : y.shape[1]] if case.by_position else z) - y)[real].max()
        if not change <= 1e-3 * np.abs(y[real]).max():
            yield "padding leaks", f"outputs change by {change:.2g} with more padding in batch[{which}]"


def order(case):
    """Whether the order of tokens matters."""
    for which in ids_of(case):
        one, places = case.longest_row(which)
        other = one[which].copy()
        other[0, places[:-1]] = other[0, places[:-1]][::-1]  # all but the last in the other order
        change = difference(case, one, [*one[:which], other, *one[which + 1 :]], 1e-4)[0]
        is_last = case.by_position and which == case.n_inputs - 1
        if len(places) > 2 and (other != one[which]).any() and not np.any(change[places[-1]] if is_last else change):
            yield "no positions", f"tokens of batch[{which}] in the other order give the same output"


def cache(case):
    """Decoding step by step, against the whole computation."""  # halfway rows change places, as in beam search
    if case.causal is None or not hasattr(case.model, "decoder"):
        raise ValueError(f"the model, {type(case.model).__name__}, has no decoder")
    *sources, ids = case.inputs
    rows = np.argsort(case.is_word(ids).sum(axis=1))[-4:]
    n, others = int(case.is_word(ids[rows]).all(axis=0).sum()), np.arange(len(rows))[::-1]
    ids, sources = ids[rows, :n], [x[rows] for x in sources]
    begin = sources[0] if sources else ids[:, :2]  # a prompt is read at once, but for its last token
    decoder = case.model.decoder(case.params, begin, max_rows=len(rows) + 1, max_len=n, backend=case.ops)
    y = case.outputs([*sources, ids])
    for t in range(0 if sources else 1, n):
        parents = others if t == max(2, n // 2) else np.sort(others)
        if parents is others:
            ids[:, :t], sources = ids[parents, :t], [x[parents] for x in sources]
            y = case.outputs([*sources, ids])
        off = np.abs(decoder.step(ids[:, t], parents) - y[:, t]).max()
        if not off <= 1e-2:
            yield "cache differs", f"in step {t}, from rows {parents}, logits differ by {off:.2g} from the whole"
            return


def ids_of(case):
    """The numbers of the inputs that are ids."""
    if case.compute and not case.of_ids:
        raise ValueError("no input is an array of ids (B, T)")
    return case.of_ids or case.outputs(case.inputs)  # which says why not


def influence(case, which):
    """Positions in the longest row, and what changes in each output if another token is there: (n,), and (n, …)."""
    one, places = case.longest_row(which)
    known = np.unique(case.batch[which])
    known = known[case.is_word(known)]
    if min(len(places), len(known)) < 2:
        raise ValueError(f"batch[{which}] has fewer than two tokens in a row")
    at = np.unique(places[np.linspace(0, len(places) - 1, 8).astype(int)])
    given, rng = [np.repeat(x, len(at), axis=0) for x in one], np.random.default_rng(which)
    changed = given[which].copy()
    for k, j in enumerate(at):
        changed[k, j] = rng.choice(known[known != changed[k, j]])
    return at, difference(case, given, [*given[:which], changed, *given[which + 1 :]])


def difference(case, inputs, others, rounding=1e-5):
    """The largest change of each output, 0 where it is not above rounding."""
    y = case.outputs(inputs)
    change = np.abs(case.outputs(others) - y).max(axis=-1)
    return np.where(change > rounding * np.abs(y).max(), change, 0)
