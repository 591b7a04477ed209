"""Masked entries never matter: NaN or infinity in them changes no result and no gradient.

Every case of the table is tested in which something is hidden: by a mask, by being ignored or by
being padding.
"""

import numpy as np
import pytest
from results import BACKENDS, arrays_of, assert_equal_within, with_half_precision

from npformer import reference
from npformer.gradients.cases import CASES
from npformer.reference.math.packed_attention import split_heads, split_q_kv, split_qkv


def given_of(case, dtype):
    """The arguments of the forward pass, and those of the backward pass
    that the forward pass does not return.
    """
    return (case.backward_arguments(dtype) if case.backward else {}) | case.arguments(dtype)


def hidden(case, given):
    """Pairs of an array, or a view of it, and where nothing in it may matter."""
    keep_mask = given.get("keep_mask")
    inputs = given.get("x", given.get("logits"))
    match case.operation:
        case "gru" | "lstm" if keep_mask is not None:
            return [(given["x_gates"], ~keep_mask)]
        case "cross_entropy" | "linear_cross_entropy":
            return [(inputs, is_ignored(given))]
        case "paired_cross_entropy" | "linear_paired_cross_entropy":
            return [(side, is_ignored(given)) for side in inputs]
        case "mse_loss" | "huber_loss" if keep_mask is not None:
            where = ~np.broadcast_to(keep_mask, inputs.shape)
            return [(inputs, where), (given["targets"], where)]
        case "embed_tokens":
            table = given["table"]
            is_padding = np.arange(len(table)) == given["pad_id"]
            return [(table, is_padding), (given["dy"], given["ids"] == given["pad_id"])]
        case "cached_attention":
            at = given["at"] if keep_mask is None else given["at"][keep_mask[:, 0, 0]]
            return [(given["kv"], ~np.isin(np.arange(len(given["kv"])), at))]
    has_mask = {"causal", "settings"} & given.keys() and "dout" in given
    return hidden_by_attention(case, given) if has_mask else []


def is_ignored(given):
    return given["targets"] == given.get("ignore_id")


def hidden_by_attention(case, given):
    """Keys and values that no query may attend to, and queries that may attend to no key."""
    settings = given.get("settings")
    dout = given["dout"]
    if settings:
        if case.operation == "self_attention":
            packed = split_qkv(given["qkv"], settings)
        else:
            packed = given["q"], given["kv"]
        q, k, v = split_q_kv(*packed, settings)
        dout = split_heads(dout, settings.n_heads)
        causal = settings.causal
    else:
        q, k, v = given["q"], given["k"], given["v"]
        causal = given["causal"]
    T, S = q.shape[-2], k.shape[-2]
    sees = np.ones((*q.shape[:-1], S), bool)
    if given["keep_mask"] is not None:
        sees &= given["keep_mask"]
    if causal:
        sees &= reference.causal_mask(T, S)
    no_key = ~sees.any(axis=-1)
    no_query = ~sees.any(axis=-2)
    if settings:  # heads of queries may share keys and values
        no_query = no_query.reshape(len(k), k.shape[1], -1, S).all(axis=2)
    places = [(q, no_key), (dout, no_key), (k, no_query), (v, no_query)]
    bias = given.get("bias")
    if bias is not None and bias.shape == sees.shape:
        places.append((bias, ~sees))
    return places


def forward_and_backward(ops, case, given):
    """All results and gradients, except for what is saved of steps that are left out."""

    def call(record, known):
        arguments = {name: known[name] for name in record.parameters if name in known}
        return arrays_of(getattr(ops, record.name)(**arguments))

    record = case.forward.record
    names = [x.name for x in record.contract.results]
    results = dict(zip(names, call(record, given), strict=False))
    gradients = call(case.backward.record, given | results) if case.backward else []
    results.pop("gates", None)
    return [*results.values(), *(x for x in gradients if x is not None)]


def hides_something(case):
    return any(where.any() for _, where in hidden(case, given_of(case, "float64")))


HIDING = [*filter(hides_something, CASES)]


def test_all_operations_that_hide_something_are_here():
    options = {"keep_mask", "memory_mask", "ignore_id", "pad_id"}
    hiding = {case.operation for case in CASES if options & case.forward.record.parameters.keys()}
    assert {case.operation for case in HIDING} == hiding


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("case", HIDING, ids=str)
@pytest.mark.parametrize("ops", BACKENDS)
def test_what_is_masked_never_matters(ops, case, poison):
    """No bit changes on the reference.

    A kernel may leave the operation to the reference, which rounds differently.
    """
    dtypes = with_half_precision(case)
    dtype = dtypes[HIDING.index(case) % len(dtypes)]
    clean = forward_and_backward(ops, case, given_of(case, dtype))
    given = given_of(case, dtype)
    for x, where in hidden(case, given):
        x[where] = poison
    bound = 0 if ops is reference else max(case.bound, case.backward_bound)
    assert_equal_within(bound, dtype, forward_and_backward(ops, case, given), clean)
