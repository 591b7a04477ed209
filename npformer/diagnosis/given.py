"""What is given, by itself: the numbers of a batch, padding, special tokens, shifts, and the parameters."""

import re

import numpy as np

from npformer import tree
from npformer.arrays import on_host

LARGEST = 1 << 18  # of a larger array every so manyth column is examined


def numbers(case):
    """Whether numbers are finite and near 0 ± 1, and whether targets differ."""
    inputs, targets = case.split(case.batch)
    counted, far = targets[case.is_counted(inputs, targets)], []
    for name, x in ("the input", inputs[0][case.is_seen(inputs)]), ("the targets", counted):
        mean, deviation = float(x.mean()), float(x.std())
        if x.size and not np.isfinite(mean):
            yield "not finite", f"{name}: {(~np.isfinite(x)).sum()} of {x.size} numbers are NaN or infinite"
        elif x.dtype.kind == "f" and (deviation > 30 or abs(mean) > 10 * max(1, deviation)):
            far.append(f"{name}: mean {mean:.3g}, standard deviation {deviation:.3g}")
    if far:
        yield "scale of the data", "; ".join(far)
    if len(targets) > 3 and (counted == counted[:1]).all():
        yield "nothing to learn", f"the targets that count are all {counted[:1]}"
    elif case.causal is not None and case.n_answers > 9 and (often := np.bincount(counted)).max() > 0.6 * counted.size:
        yield "nothing to learn", f"{often.max() / counted.size:.0%} of the targets are {often.argmax()}"
    x, y = (np.reshape(each, (len(each), -1)) for each in (inputs[0], targets))
    of_rows = [] if case.by_position or x.dtype.kind != "f" else y.T[:, :, None]
    if any((x == each).all(axis=0).any() and len(np.unique(each)) > 7 for each in of_rows):
        yield "answers in the input", "a number of each row of the input is what is to be predicted for this row"


def padding(case):
    """Where padding is, and whether the model knows it."""
    if case.pad_id is not None and case.pad_id in case.decoding[:2]:
        yield "padding inside", f"pad_id={case.pad_id} is bos_id or eos_id, too"
    for which in case.of_ids:
        ids, is_word = case.batch[which], case.is_word(case.batch[which])
        if inside := (is_word[:, 1:] & ~is_word[:, :-1]).any(axis=1).mean():
            yield "padding inside", f"in {inside:.0%} of rows of batch[{which}], pad_id={case.pad_id} is before a word"
        filler = np.bincount(ids[:, -1]).argmax()
        runs = np.cumprod((ids == filler)[:, ::-1], axis=1).sum(axis=1)
        is_known = filler == case.pad_id or (which != case.causal and not hasattr(case.model, "pad_id"))
        is_filler = ids.shape[1] > 3 and len(set(runs)) > 2 and runs.sum() > 0.7 * (ids == filler).sum()
        if not is_known and is_filler and (often := (runs > 1).mean()) >= 0.25:
            share = f"{runs.sum() / ids[:, 1:].size:.0%} of all {'targets' if which == case.causal else 'tokens'}"
            yield "padding counted", f"{often:.0%} of the rows end with several {filler}, {share}; pad_id={case.pad_id}"


def special_tokens(case):
    """The begin and end tokens, and whether they are those of decoding."""
    if case.causal != 1 or len(tgt := case.batch[1]) < 4:
        return
    bos_id, eos_id, max_len = case.decoding
    n, first = case.is_word(tgt).sum(axis=1), tgt[0, 0]
    ends = tgt[np.arange(len(tgt)), n - 1]
    last = np.bincount(ends).argmax()
    if (tgt[:, 0] != first).any():
        yield "begin token", f"targets begin with different tokens, such as {np.unique(tgt[:, 0])[:5].tolist()}"
    elif (tgt[:, 1] == first).all():
        yield "begin token", f"all targets begin with {first} twice"
    elif bos_id not in (None, first):
        yield "begin token", f"all targets begin with {first}, and you decode with {bos_id=}"
    share, is_short = (ends == last).mean(), max_len is not None and max_len < n.max() - 1
    n_ends = (tgt[:, 1:] == last).sum()  # the first token may be the same id
    if share < 0.6 or n_ends > 1.1 * len(tgt) or eos_id not in (None, last) or is_short:
        seen = f"{share:.0%} of {len(tgt)} targets of up to {n.max() - 1} tokens end with {last}"
        yield "end token", f"{seen}, which follows {n_ends} times in them; {eos_id=}, {max_len=}"


def partners(case):
    """Whether targets fit the inputs of other rows better than their own."""
    inputs, targets = case.split(case.batch)
    if case.of_ids and len(targets) > 15 and targets.ndim > 1 and min(inputs[0].max(), targets.max()) > 8:
        fits = fits_by_shift(inputs[0], targets)
        second, most = np.sort(np.abs(fits))[-2:]
        if fits[0] < 3 and most > max(8, 2.5 * second) and fits[k := fits.argmax()] == most:
            seen = f"{most:.0f} standard deviations above chance, those of row i by {fits[0]:.1f}"
            seen = f"target i fits the tokens of row i+{k} of the input by {seen}: a row may be missing in one of both"
            yield "rows do not match", seen


def fits_by_shift(x, y):
    """How well rows of ids fit the rows of others that are k rows after them, by k, in standard deviations."""
    alike = []
    for each in (x[:64], y[:64]):
        ids = np.unique(each, return_inverse=True)[1].reshape(len(each), -1)
        has = np.zeros((len(ids), ids.max(initial=0) + 1), np.float32)
        has[np.arange(len(ids))[:, None], ids] = 1
        has -= has.mean(axis=0)
        pairs = has @ has.T * (1 - np.eye(len(ids)))  # of two rows each: what they share
        alike.append(pairs / (np.linalg.norm(pairs) + 1e-9))
    fits = np.array([np.vdot(alike[0], np.roll(alike[1], k, axis=(0, 1))) for k in range(len(alike[0]))])
    fits -= np.median(fits)
    return fits / (1.5 * np.median(np.abs(fits)) + 0.01)


def shift(case):
    """The targets of a text against its tokens."""
    fits = case.shifts()
    if fits and fits[best := max(fits, key=fits.__getitem__)] > fits[1] + 0.2:
        seen = f"token t{best:+d}" if best else "the input token t itself"
        yield "targets not shifted", f"target t is {seen} in {fits[best]:.0%} of all places, not token t+1"


def weights(case):
    """Weights that are not finite, equal, or of another size than usual."""
    known, equal, at_most = dict[bytes, str](), list[str](), 4 if case.is_new else 16
    for path, x in tree.leaves(case.params):
        x, is_table = on_host(x), not path.endswith("weight")
        if not np.isfinite(x).all():
            yield "not finite", f"parameter {path} holds NaN or infinity"
        if x.ndim != 2 or min(x.shape) < 2:
            continue
        w = x if is_table else x.T  # a row a token, or a unit
        w = np.delete(w, case.pad_id, axis=0) if is_table and case.pad_id in range(len(w)) else w
        w = w[:: max(1, w.size // LARGEST)]
        other, distinct = known.setdefault(w.tobytes(), path), len({row.tobytes() for row in w})
        seen = f"{path}: only {distinct} of {len(w)} {'rows' if is_table else 'columns'} are different"
        if other != path or distinct < 0.9 * len(w) or (w == w[:, :1]).all(axis=1).mean() > 0.1:
            equal.append(f"{path} equals {other}" if other != path else seen)
        usual = 1.0 if re.search("positions|types", path) else (x.shape[1] if is_table else sum(x.shape) / 2) ** -0.5
        times = np.median(np.sqrt((w.astype(float) ** 2).mean(axis=1))) / usual
        generous = 1.5 / usual if re.search("emb|wte|wpe", path) else 0  # a table may be of variance 1
        if not 1 / (2 * at_most) < times < max(at_most, generous):
            yield "scale of weights", f"{path} has numbers {times:.2g} times the usual {usual:.2g}"
    if equal:
        yield "equal weights", equal[0] + f"; {len(equal) - 1} other matrices are like this" * (len(equal) > 1)
