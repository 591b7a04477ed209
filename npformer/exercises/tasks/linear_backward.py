"""The backward pass of the linear map."""

from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task, draw, gradients_of, sizes


def linear_backward(dy, x, weight, bias):
    dx = dy @ weight.T
    dweight = x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])
    dbias = dy.reshape(-1, dy.shape[-1]).sum(axis=0)
    return dx, dweight, dbias


def cases(rng):
    B, T, D, F = sizes(rng, 4)
    return [
        Case("one row", draw(rng, 1, 2), draw(rng, 1, 3), draw(rng, 3, 2), draw(rng, 2)),
        Case("several rows", draw(rng, 4, 2), draw(rng, 4, 3), draw(rng, 3, 2), draw(rng, 2)),
        Case("equal sizes", *draw(rng, 3, 3, 3), draw(rng, 3)),
        Case("a batch", draw(rng, B, T, F), draw(rng, B, T, D), draw(rng, D, F), draw(rng, F)),
    ]


exercise = Task(
    answer=linear_backward,
    title="the backward pass of y = x W + b",
    page="gradients/linear",
    task="""
        y = x W + b, where x may have any number of leading axes. Given dy, the gradient of the loss with respect to y,
        return the gradients with respect to x, W and b.

        Begin with one number: y_tf = Σ_d x_td W_df + b_f. Which y depend on x_td, which on W_df, which on b_f?""",
    arguments={
        "dy": "(..., F) array",
        "x": "(..., D) array",
        "weight": "(D, F) array",
        "bias": "(F,) array",
    },
    results={"dx": "(..., D) array", "dweight": "(D, F) array", "dbias": "(F,) array"},
    expected=gradients_of(lambda x, weight, bias: x @ weight + bias),
    cases=cases,
    mistakes=(
        Mistake({"dy @ weight.T": "dy @ weight"}, explanations.NOT_TRANSPOSED),
        Mistake(
            {".T @ dy.reshape(-1, dy.shape[-1])": ".T @ dy.reshape(-1, dy.shape[-1]) / x.size"},
            "the gradient of the weight is a sum over the rows, not a mean",
        ),
        Mistake(
            {"x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])": "x.T @ dy"},
            explanations.AXES_OF_A_BATCH,
        ),
        Mistake(
            {
                "x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])": "(x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])).T"
            },
            "dweight is transposed: it has the shape of the weight, (D, F)",
        ),
        Mistake(
            {"dbias = dy.reshape(-1, dy.shape[-1]).sum(axis=0)": "dbias = dy"},
            "the bias is used by every row, so its gradient is the sum over all rows",
        ),
        Mistake(
            {"sum(axis=0)": "mean(axis=0)"},
            "the gradient of the bias is a sum over the rows, not a mean",
        ),
        Mistake(
            {"dbias = dy.reshape(-1, dy.shape[-1]).sum(axis=0)": "dbias = dy.sum(axis=0)"},
            "the sum for the bias is over all leading axes, also that of the batch",
        ),
    ),
    hints=(
        "∂y_tf/∂x_td = W_df, so dx_td = Σ_f dy_tf W_df. Which matrix product is that?",
        "∂y_tf/∂W_df = x_td, so dW_df = Σ_t x_td dy_tf: a sum over all rows of all leading axes.",
        "a.reshape(-1, a.shape[-1]) makes one axis of all leading axes.",
    ),
)
