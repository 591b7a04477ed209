"""A contract that does not fit its function is an error when the operation is defined."""

import numpy as np
import pytest

from npformer.operations.record import backward_of, operation


def of_two(x, weight):
    return x @ weight


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        ("x: B D -> y: B F", "the contract of of_two lacks weight, expected 'weight: axes'"),
        ("x: B D, w: D F -> y: B F", "the contract of of_two has w, expected some of"),
        ("x B D, weight: D F -> y: B F", "'x B D', expected 'array: axes'"),
        ("x: B D, weight: D,F -> y: B F", "'F', expected 'array: axes'"),
        ("x: batch D, weight: D F -> y: B F", "'batch' is no axis and no kind"),
        ("", "the contract of of_two lacks x"),
    ],
)
def test_contracts_that_do_not_fit(contract, said):
    with pytest.raises(ValueError) as error:
        operation(contract)(of_two)
    assert said in str(error.value)


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
    with pytest.raises(TypeError, match="n='two' is a str, expected an int"):
        cut(np.ones((2, 3)), "two")
