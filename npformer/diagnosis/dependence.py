"""What an output depends on, found by a change of the input: exact, as what is masked changes no bit."""

import numpy as np

from npformer.arrays import on_host
from npformer.diagnosis.finding import LIKELY

N_PLACES = 8  # places in a row at which a token is changed
N_TOKENS = 12  # of which there is a row each
ROUNDING = 1e-5  # of the largest output: a smaller change may be one of the order in which sums are computed


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
    y = case.outputs(case.inputs)
    change = np.abs(case.outputs(others)[-1] - y[0]).max()
    # Sums may be rounded otherwise in another place. The outputs of this row alone may all be near 0.
    if change > 1e-4 * np.abs(y).max():
        yield "rows leak", f"the outputs of a row change by {change:.2g} with the other rows, or its place among them"


def tokens(case):
    """Which outputs depend on a token."""
    for which in ids_of(case):
        places, change = influence(case, which)
        if which == case.interface.causal:
            yield from tokens_before(case, places, change)
            continue
        share = change.reshape(len(places), -1).any(axis=1).mean()
        if share < 0.5:
            yield "input ignored", f"only {share:.0%} of the tokens of batch[{which}] change an output"


def tokens_before(case, places, change):
    """Whether each output depends on the tokens up to it, and on no later one."""
    distance = np.arange(change.shape[1]) - places[:, None]  # from the token that is changed to the output
    before = np.where(distance < 0, change, 0)
    if before.any():
        changed, output = np.unravel_index(before.argmax(), before.shape)
        seen = f"output {output} changes by {before.max():.2g} with the later token {places[changed]}"
        yield "later tokens leak", seen
    elif not change[distance == 0].all():
        yield "input ignored", "outputs do not depend on the newest token"
    elif not change[distance > 0].any():
        seen = "outputs do not depend on any token before the newest one"
        yield "input ignored", f"{seen}; if the model is meant to see one token, this is no mistake", LIKELY
    elif case.is_new:  # heads that are trained may look at a few tokens alone
        yield from holes(places, change)


def holes(places, change):
    """Whether some tokens are seen by fewer of the outputs after them than others are, from one output to the next."""
    seen_until = np.array([np.flatnonzero(x[: places[-1] + 1])[-1] for x in change])
    reach = seen_until - places
    last_change = change[np.arange(len(places)), seen_until]
    is_abrupt = last_change > 2e-4 * change.max(axis=1)  # else it has faded
    is_short = reach < 0.75 * np.minimum(reach.max(), places[-1] - places)
    for k in np.flatnonzero(is_abrupt & is_short)[:1]:
        seen = f"token {places[k]} changes no output after {seen_until[k]}, but another changes {reach.max()} after it"
        yield "input ignored", f"{seen}, as if positions and heads were mixed by a reshape without a transpose", LIKELY


def both_sides(case):
    """Whether what an encoder computes for a token depends on later tokens, as on those before it."""
    encode = getattr(case.architecture, "encode", None)
    if encode is None or 0 not in case.interface.ids:
        return
    one, places = longest_row(case, 0)
    if case.interface.n_inputs > 1:
        one = one[:1]  # the source alone

    def states_with(place):
        states = encode(case.full_params, *with_other_token(case, one, 0, place), backend=case.ops)
        return on_host(states)[0]

    states = encode(case.full_params, *one, backend=case.ops)
    if getattr(states, "shape", ())[:2] != one[0].shape:  # a recurrent encoder has other states, too
        return
    states = on_host(states)
    first, last = places[0], places[-1]
    changes_later = (states_with(first) != states[0])[places[1:]].any()
    changes_earlier = (states_with(last) != states[0])[places[:-1]].any()
    if changes_later and not changes_earlier:
        seen = "what the encoder computes for a token does not depend on later ones, as with a causal mask"
        yield "input ignored", seen, LIKELY


def positions_or_tokens(case):
    """Whether a new model sees the tokens, beside positions that may be much larger."""
    if not case.is_new:
        return
    for which in ids_of(case):
        ratio = tokens_to_positions(case, which)
        # It is 2 to 25 in new models of 1 to 12 layers; at 0.3, positions have ten times the variance of tokens.
        if ratio < 0.3:
            seen = f"outputs change {ratio:.2g} times as much with the token of batch[{which}] as with its position"
            yield "input ignored", f"{seen}, as if positions were much larger than embeddings", LIKELY


def tokens_to_positions(case, which):
    """How much outputs vary with the token, divided by how much they vary with the position, in rows of one token."""
    one, places = longest_row(case, which)
    ids = known_words(case, which)[:N_TOKENS, None]
    n = len(places)
    inputs = [np.repeat(x, len(ids), axis=0) for x in one]

    def outputs_of(length):
        inputs[which] = np.repeat(ids, length, axis=1)
        return case.outputs([x if x.ndim < 2 or x.shape[1] != one[which].shape[1] else x[:, :length] for x in inputs])

    y = outputs_of(n)
    of_tokens = np.sqrt(y.var(axis=0).mean())
    if case.interface.by_position and which == case.interface.n_inputs - 1:
        of_positions = np.sqrt(y.var(axis=1).mean())
    else:  # a mean over equal tokens depends on their number by their positions alone
        of_positions = np.sqrt(((y - outputs_of(1)) ** 2).mean() / 2)
    return of_tokens / max(of_positions, 1e-30)


def scores(case):
    """Whether the scores of a new model's attention are as large as usual."""
    has_weights = hasattr(case.architecture, "n_heads") and hasattr(case.architecture, "attention_weights")
    if not (case.is_new and has_weights and case.interface.ids):
        return
    one, _ = longest_row(case, case.interface.ids[-1])
    weights = case.architecture.attention_weights(case.full_params, *one, backend=case.ops)
    spreads = [spread_of_scores(on_host(x)) for of_stack in weights.values() for x in of_stack]
    spread = np.median(spreads or [0])
    # It is 0.3 to 1 in new models of 1 to 6 layers; without a scale, that times the root of a head's width.
    if spread > 1.5:
        yield "scale of scores", f"in a softmax, the scores of a query have a standard deviation of {spread:.2g}"


def spread_of_scores(weights):
    """The standard deviation of the scores of a query, in the middle, from attention weights (…, T, S)."""
    scores = np.log(np.where(weights > 0, weights, np.nan).astype(float))
    spreads = np.nanstd(scores, axis=-1)
    n_keys = (weights > 0).sum(axis=-1)
    return np.median(spreads[n_keys > 3]) if (n_keys > 3).any() else 0.0


def padding(case):
    """Whether more padding changes outputs."""
    if case.interface.compute and case.pad_id is None:
        raise ValueError("the model has no pad_id")
    if len(case.inputs) > len(ids_of(case)):
        raise ValueError("a batch has more than ids, such as a mask that says what is padding")
    y = case.outputs(case.inputs)
    real = case.is_word(case.inputs[-1]) if case.interface.by_position else slice(None)
    for which, ids in enumerate(case.inputs):
        inputs = list(case.inputs)
        inputs[which] = np.pad(ids, ((0, 0), (0, 3)), constant_values=case.pad_id)
        padded = case.outputs(inputs)
        if case.interface.by_position:
            padded = padded[:, : y.shape[1]]
        change = np.abs(padded - y)[real].max()
        if not change <= 1e-3 * np.abs(y[real]).max():
            yield "padding leaks", f"outputs change by {change:.2g} with more padding in batch[{which}]"


def order(case):
    """Whether the order of tokens matters."""
    if getattr(case.architecture, "positions", None) == "none":
        raise ValueError('positions="none" is a choice, with which an encoder sees no order')
    for which in ids_of(case):
        one, places = longest_row(case, which)
        inputs = list(one)
        inputs[which] = one[which].copy()
        inputs[which][0, places[:-1]] = inputs[which][0, places[:-1]][::-1]  # all but the last in the other order
        change = difference(case, one, inputs, 1e-4)[0]
        if case.interface.by_position and which == case.interface.n_inputs - 1:
            change = change[places[-1]]  # others have other tokens before them
        is_other = (inputs[which] != one[which]).any()
        if len(places) > 2 and is_other and not np.any(change):
            yield "no positions", f"tokens of batch[{which}] in the other order give the same output"


def cache(case):
    """Decoding step by step, against the whole computation."""
    if case.interface.causal is None or not hasattr(case.architecture, "decoder"):
        raise ValueError(f"the model, {type(case.model).__name__}, has no decoder")
    *sources, ids = case.inputs
    rows = np.argsort(case.is_word(ids).sum(axis=1))[-4:]
    n_steps = int(case.is_word(ids[rows]).all(axis=0).sum())
    ids = ids[rows, :n_steps]
    sources = [x[rows] for x in sources]
    begin = sources[0] if sources else ids[:, :2]  # a prompt is read at once, but for its last token
    options = {"max_rows": len(rows) + 1, "max_len": n_steps, "backend": case.ops}
    decoder = case.architecture.decoder(case.full_params, begin, **options)
    y = case.outputs([*sources, ids])
    for t in range(0 if sources else 1, n_steps):
        parents = np.arange(len(rows))
        if t == max(2, n_steps // 2):  # rows change places, as in beam search
            parents = parents[::-1]
            ids[:, :t] = ids[parents, :t]
            sources = [x[parents] for x in sources]
            y = case.outputs([*sources, ids])
        off = np.abs(decoder.step(ids[:, t], parents) - y[:, t]).max()
        if not off <= 1e-2:
            yield "cache differs", f"in step {t}, from rows {parents}, logits differ by {off:.2g} from the whole"
            return


def ids_of(case):
    """The numbers of the inputs that are ids."""
    if case.interface.compute is None:
        raise ValueError(case.interface.missing)
    if not case.interface.ids:
        raise ValueError("no input is an array of ids (B, T)")
    return case.interface.ids


def longest_row(case, which):
    """The row with most words in an input, as a batch of inputs, and where its words are; at least two."""
    one, places = case.longest_row(which)
    if min(len(places), len(known_words(case, which))) < 2:
        raise ValueError(f"batch[{which}] has fewer than two tokens in a row")
    return one, places


def known_words(case, which):
    """The words that are in the batch."""
    ids = np.unique(case.batch[which])
    return ids[case.is_word(ids[:, None])[:, 0]]


def with_other_token(case, one, which, place):
    """The same row with another token in one place of an input."""
    words = known_words(case, which)
    inputs = list(one)
    inputs[which] = one[which].copy()
    others = words[words != inputs[which][0, place]]
    inputs[which][0, place] = np.random.default_rng(place).choice(others)
    return inputs


def influence(case, which):
    """Places in the longest row, and what changes in each output if another token is there: (n,), and (n, …)."""
    one, places = longest_row(case, which)
    places = np.unique(places[np.linspace(0, len(places) - 1, N_PLACES).astype(int)])
    changed = [with_other_token(case, one, which, place) for place in places]
    inputs = [np.repeat(x, len(places), axis=0) for x in one]
    others = [np.concatenate(arrays) for arrays in zip(*changed, strict=True)]
    return places, difference(case, inputs, others)


def difference(case, inputs, others, rounding=ROUNDING):
    """The largest change of each output, 0 where it is not above rounding."""
    y = case.outputs(inputs)
    change = np.abs(case.outputs(others) - y).max(axis=-1)
    return np.where(change > rounding * np.abs(y).max(), change, 0)
