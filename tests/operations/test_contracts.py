"""A contract that does not fit its function is an error when the operation is defined.

What does not fit a contract is an error when the operation is called.
"""

import re
from typing import NamedTuple

import numpy as np
import pytest
from refusals import refuses

from npformer import reference
from npformer.layers import AttentionSettings
from npformer.operations.record import backward_of, operation


def of_two(x, weight):
    return x @ weight


WRONG = {
    "x: B D -> y: B F": "the contract of of_two lacks weight, expected 'weight: axes'",
    "x: B D, w: D F -> y: B F": "the contract of of_two has w, expected some of",
    "x B D, weight: D F -> y: B F": "'x B D', expected 'array: axes'",
    "x: B D, weight: D,F -> y: B F": "'F', expected 'array: axes'",
    "x: batch D, weight: D F -> y: B F": "'batch' is no axis and no kind",
    "x: B (D+), weight: D F -> y: B F": "'(D+)' is no axis and no kind",
    "x: B D*F, weight: D F -> y: B F": "does not tell D and F of x: D*F",
    "x: B (D+F), weight: D F -> y: B F": "does not tell (D+F) of x: (D+F)",
    "x: B D, weight: ~ D F -> y: B F": "does not tell F of weight: F",
    "x: B D, weight: D F, G divides F -> y: B F": "has the condition G divides F, but no G",
    "x: B D, weight: D F, 2 divides D if b -> y: B F": "has the condition 2 divides D, but no b",
    "x: B D, WIDTHS[weight] = F -> y: B F": "expected tables={'WIDTHS': …} beside the contract",
    "": "the contract of of_two lacks x",
}


@pytest.mark.parametrize("contract", WRONG)
def test_contracts_that_do_not_fit(contract):
    refuses(ValueError, re.escape(WRONG[contract]), operation(contract), of_two)


def test_a_gradient_is_called_like_its_result():
    forward = operation("x: B D, weight: D F -> y: B F")(of_two)

    def backward(dout, x, weight):
        return dout

    with pytest.raises(ValueError, match="lacks dout.*as dy for the gradient of its result y"):
        backward_of(forward)(backward)


def test_flops_are_counted_in_letters_of_the_contract():
    with pytest.raises(ValueError, match=r"flops='2\*N\*G' of of_two has G, expected some of"):
        operation("x: ... D, weight: D F -> y: ... F", flops="2*N*G")(of_two)


def test_a_size_is_an_int():
    def cut(x, n):
        return x[:n]

    cut = operation("x: B D, n = B -> y: B D")(cut)
    refuses(TypeError, "n='two' is a str, expected an int", cut, np.ones((2, 3)), "two")
    refuses(TypeError, "n=True is a bool, expected an int", cut, np.ones((1, 3)), True)


@operation(
    "qkv: B T (H+2*G)*K, n_heads = H, n_kv_heads = G or H, G divides H, "
    "rotations: T K wide, 2 divides K if rotations, bias: ~ B H T T -> q: B T H*K, kv: B T 2*G*K"
)
def parts(
    qkv: np.ndarray,
    n_heads: int,
    n_kv_heads: int | None = None,
    rotations: np.ndarray | None = None,
    bias: np.ndarray | None = None,
):
    n_kv_heads = n_kv_heads or n_heads
    width = n_heads * (qkv.shape[-1] // (n_heads + 2 * n_kv_heads))
    return qkv[..., :width], qkv[..., width:]


@backward_of(parts)
def parts_backward(dq, dkv, n_heads: int, n_kv_heads: int | None = None):
    return np.concatenate([dq, dkv], axis=-1), None


def shapes(width, *sizes):
    return [x.shape[-1] for x in parts(np.ones((2, 5, width)), *sizes)]


def test_a_sum_of_products_tells_the_size_of_a_letter():
    assert shapes(8 * 3, 4, 2) == [12, 12]
    expected = (
        "(B, T, (H+2*G)*K) with H = 4 from n_heads, G = 2 from n_kv_heads, (H+2*G)*K divisible by 8"
    )
    message = re.escape(f"qkv has shape (2, 5, 25), expected {expected}")
    refuses(ValueError, message, shapes, 25, 4, 2)


def test_no_number_divides_a_width_of_0_where_it_is_not_allowed():
    expected = (
        "(B, T, (H+2*G)*K) with H = 4 from settings.n_heads, "
        "G = 2 from settings.n_kv_heads, K at least 1"
    )
    attention = reference.self_attention
    message = re.escape(expected) + "$"
    refuses(ValueError, message, attention, np.ones((2, 5, 0)), AttentionSettings(4, 2))


def test_a_size_that_is_none_is_that_of_another_letter():
    assert shapes(12 * 3, 4) == shapes(12 * 3, 4, None) == shapes(12 * 3, 4, 4) == [12, 24]
    expected = "with H = 4 from n_heads, G = 4 from n_heads, (H+2*G)*K divisible by 12"
    refuses(ValueError, re.escape(expected), shapes, 25, 4)


def test_a_size_has_to_divide_another():
    for n_kv_heads in (3, 8):
        expected = (
            f"H = 4 from n_heads, G = {n_kv_heads} from n_kv_heads: expected H divisible by G"
        )
        refuses(ValueError, f"^{expected}$", shapes, 24, 4, n_kv_heads)


def test_a_condition_that_holds_if_an_array_is_given():
    qkv, rotations = np.ones((2, 5, 3 * 7)), np.ones((5, 7))
    parts(qkv, 1)
    expected = "K = 7 from qkv (2, 5, 21): expected K divisible by 2, as rotations is given"
    refuses(ValueError, re.escape(expected), parts, qkv, 1, rotations=rotations)
    parts(qkv[..., :18], 1, rotations=rotations[:, :6])


def test_sums_optional_sizes_and_conditions_hold_for_the_backward_pass_too():
    dq, dkv = np.ones((2, 5, 12)), np.ones((2, 5, 12))
    assert parts_backward(dq, dkv, 4, 2)[0].shape == (2, 5, 24)
    refuses(ValueError, "expected H divisible by G", parts_backward, dq, dkv, 4, 3)
    message = r"dkv has shape \(2, 5, 11\), expected \(B, T, 2\*G\*K\)"
    refuses(ValueError, message, parts_backward, dq, dkv[..., :11], 4, 2)


def test_the_default_of_a_size_is_in_its_contract_and_in_its_hint():
    def heads(x, n_heads: int, n_kv_heads: int | None = None):
        return x

    def all_heads(x, n_heads: int, n_kv_heads: int):
        return x

    def refused(contract, function):
        message = "has n_kv_heads = G, expected 'or' and the letter of an argument before"
        refuses(ValueError, message, operation(contract), function)

    refused("x: B H*G*K, n_heads = H, n_kv_heads = G -> y: B H*G*K", heads)
    refused("x: B H*G*K, n_kv_heads = G or H, n_heads = H -> y: B H*G*K", heads)
    refused("x: B H*G*K, n_heads = H, n_kv_heads = G or H -> y: B H*G*K", all_heads)


def test_a_size_may_be_a_field_of_an_argument():
    class Heads(NamedTuple):
        n_heads: int
        n_kv_heads: int | None = None

    @operation(
        (
            "qkv: B T (H+2*G)*K, heads.n_heads = H, heads.n_kv_heads = G or H, "
            "G divides H -> out: B T H*K"
        ),
        flops="2*B*T*H*K",
    )
    def attend(qkv, heads: Heads):
        return qkv[..., : heads.n_heads]

    for heads in (Heads(2), Heads(2, 1)):
        assert attend(np.ones((1, 3, 12)), heads).shape == (1, 3, 2)
    message = "H = 4 from heads.n_heads, G = 3 from heads.n_kv_heads: expected H divisible"
    refuses(ValueError, message, attend, np.ones((1, 3, 12)), Heads(4, 3))
    message = r"with H = 5 from heads.n_heads, G = 5 from heads.n_heads, \(H\+2\*G\)"
    refuses(ValueError, message, attend, np.ones((1, 3, 12)), Heads(5))


def test_the_gradient_of_an_array_that_broadcasts_has_its_own_shape():
    @operation("scores: B T S, bias: ~ B T S -> y: B T S")
    def biased(scores, bias: np.ndarray | None = None):
        return scores if bias is None else scores + bias

    @backward_of(biased)
    def biased_backward(dy, bias: np.ndarray | None = None):
        return dy, None if bias is None else dy.sum(axis=(0, 1))

    dscores, dbias = biased_backward(np.ones((0, 3, 5)), np.ones(5))  # of no rows: the sum is 0
    assert dscores.shape == (0, 3, 5)
    assert dbias.tolist() == [0] * 5
    message = r"bias has shape \(2, 5\), expected one that broadcasts to \(B, T, S\)"
    refuses(ValueError, message, biased, np.ones((2, 3, 5)), np.ones((2, 5)))


def test_a_name_is_a_size_by_its_table():
    @operation("x: ... I*F, INPUTS[kind] = I -> y: ... F", tables={"INPUTS": {"one": 1, "two": 2}})
    def gated(x, kind):
        return x if kind == "one" else x[..., : x.shape[-1] // 2]

    assert gated(np.ones((2, 6)), "two").shape == (2, 3)
    message = r"expected \(..., I\*F\) with I = 2 from kind, I\*F divisible by 2"
    refuses(ValueError, message, gated, np.ones((2, 5)), "two")
    refuses(ValueError, "kind='three', expected 'one' or 'two'", gated, np.ones((2, 5)), "three")
