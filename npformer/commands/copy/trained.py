"""What a model has learned: its scores on sequences that were not trained on, and some answers."""

import itertools
from typing import Any, NamedTuple

from npformer.models import Transformer
from npformer.text.copy_task import BOS, EOS, PAD, exact_match

N_SHOWN = 5
WORDS = {BOS: "<begin>", EOS: "<end>"}


class Trained(NamedTuple):
    """A model after its training, and the sequences with which it is tested."""

    model: Transformer
    params: Any  # a nested dict
    ops: Any
    src: Any  # (B, S) int
    tgt: Any  # (B, T+1) int


def evaluate(trained, task):
    """The scores of a model, and what it writes for each of the held-out sequences."""
    model, params, ops, src, tgt = trained
    share, answers = exact_match(model, params, src, tgt, backend=ops)
    longer = task.longer(len(tgt))
    share_longer, _ = exact_match(model, params, *longer, backend=ops)
    loss, _ = model.loss(params, src, tgt[:, :-1], tgt[:, 1:], backend=ops)
    scores = {"exact_match": share, "exact_match_longer": share_longer, "loss": float(loss)}
    return scores, answers


def report(result, task, trained, answers):
    n_tested = len(trained.src)
    print(f"\n{n_tested} sequences that were not trained on, decoded word by word; a few of them:")
    rows = zip(trained.src, trained.tgt, answers, strict=True)
    for src, tgt, row in itertools.islice(rows, N_SHOWN):
        answer = sequence_of(row)
        mark = "right" if answer == sequence_of(tgt)[1:] else "WRONG"
        print(f"  {words(sequence_of(src)):<24} -> {words(answer):<28} {mark}")
    print(
        f"\nright from the first word to the end, held out: {100 * result['exact_match']:.1f} %"
        f"   (loss {result['loss']:.2g} per token)"
        f"\nthe same, longer than any in training ({task.max_len + 1} to {task.max_len + 5} "
        f"symbols): {100 * result['exact_match_longer']:.1f} % (low: positions never trained)"
        f"\n{result['seconds']:.1f} seconds in all, "
        f"{result['tokens_per_second']:,.0f} target tokens/s in training"
    )


def sequence_of(row):
    return tuple(int(token) for token in row if token != PAD)


def words(sequence):
    return " ".join(WORDS.get(token, str(token)) for token in sequence)
