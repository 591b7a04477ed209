"""The backward pass of attention."""

import numpy as np

from npformer import reference
from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task, draw, gradients_of, sizes
from npformer.reference import softmax_backward


def attention_backward(dout, q, k, v, weights):
    scale = 1 / np.sqrt(q.shape[-1])
    dv = weights.swapaxes(-1, -2) @ dout
    dweights = dout @ v.swapaxes(-1, -2)
    dscores = softmax_backward(dweights, weights)
    dq = scale * dscores @ k
    dk = scale * dscores.swapaxes(-1, -2) @ q
    return dq, dk, dv


def expected(dout, q, k, v, weights):
    return gradients_of(lambda *qkv: reference.attention(*qkv, weights > 0)[0])(dout, q, k, v)


def case(what, rng, batch, T, S, K, Kv, causal=False):
    q, k, v = draw(rng, *batch, T, K), draw(rng, *batch, S, K), draw(rng, *batch, S, Kv)
    return Case(
        what, draw(rng, *batch, T, Kv), q, k, v, reference.attention(q, k, v, causal=causal)[1]
    )


def cases(rng):
    H, T, S, K, Kv = sizes(rng, 5)
    return [
        case("one query, two keys", rng, (), 1, 2, 2, 1),
        case("equal sizes", rng, (), 3, 3, 3, 3),
        case("a sentence", rng, (), 2, 3, 4, 5),
        case("heads", rng, (H,), T, S, K, Kv),
        case("the future hidden", rng, (2,), 3, 3, 2, 4, causal=True),
    ]


exercise = Task(
    answer=attention_backward,
    title="the backward pass of attention",
    page="gradients/attention",
    task="""
        scores = q kᵀ / √K, weights = softmax(scores), out = weights v. Given dout and what the forward pass has
        computed, return the gradients of q, k and v.

        Go backwards: out = weights v gives dv and dweights; softmax gives dscores; the scores give dq and dk. You may use
        softmax_backward(dy, y) of npformer. A hidden key has weight 0, so no mask is needed.""",
    arguments={
        "dout": "(..., T, Kv) array",
        "q": "(..., T, K) array",
        "k": "(..., S, K) array",
        "v": "(..., S, Kv) array",
        "weights": "(..., T, S) array, of the forward pass",
    },
    results={"dq": "(..., T, K) array", "dk": "(..., S, K) array", "dv": "(..., S, Kv) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {"weights.swapaxes(-1, -2) @ dout": "weights @ dout"},
            "dv = weightsᵀ dout: the weights are not transposed",
        ),
        Mistake(
            {"scale * dscores": "dscores"}, "the factor 1/√K of the scores is missing in dq and dk"
        ),
        Mistake(
            {"dq = scale * dscores": "dq = dscores"},
            "the factor 1/√K of the scores is missing in dq",
        ),
        Mistake(
            {"dk = scale * dscores": "dk = dscores"},
            "the factor 1/√K of the scores is missing in dk",
        ),
        Mistake(
            {"softmax_backward(dweights, weights)": "dweights"},
            "the softmax is left out: dscores is softmax_backward(dweights, weights)",
        ),
        Mistake(
            {"softmax_backward(dweights, weights)": "softmax_backward(weights, dweights)"},
            "the arguments of softmax_backward are exchanged: dy comes first",
        ),
        Mistake(
            {"softmax_backward(dweights, weights)": "weights * dweights"},
            "the backward pass of softmax is more than y · dy: it subtracts Σ_s dweights · weights in each row",
        ),
        Mistake(
            {"softmax_backward(dweights, weights)": "dweights * weights * (1 - weights)"},
            explanations.OWN_SCORE_ONLY,
        ),
        Mistake(
            {"@ k\n": "@ q\n", "@ q\n    return": "@ k\n    return"},
            "q and k are exchanged: scores = q kᵀ, so dq = dscores k and dk = dscoresᵀ q",
        ),
        Mistake(
            {"dscores.swapaxes(-1, -2)": "dscores"}, "dk = dscoresᵀ q: dscores is not transposed"
        ),
    ),
    hints=(
        "For c = a b with matrices, da = dc bᵀ and db = aᵀ dc. Use it for out = weights v.",
        "dweights = dout vᵀ, and dscores = softmax_backward(dweights, weights).",
        "scores = (q kᵀ) / √K: dq = dscores k / √K and dk = dscoresᵀ q / √K.",
    ),
    needs=("from npformer import softmax_backward",),
)
