"""The exercises of one's own Transformer without formulas of gradients, which a person derives.

``npformer exercises build --derive`` writes the file.
"""

from dataclasses import replace

from npformer.exercises.course import Course
from npformer.exercises.start import explained
from npformer.exercises.transformer import backward, forward, layers
from npformer.exercises.transformer.page import PAGE
from npformer.extras import PAGES

NAME = "derive"  # of the course

HEADER = '''"""Your own Transformer: encoder and decoder, forward and backward. You derive the gradients.

Write the functions that are exercises, from top to bottom, in NumPy alone. The forward passes are
told; what `backward` computes is yours to find, on paper first. Three rules are all that you need:

    dx is the gradient of the loss with respect to x, of the shape of x: dx_i = ∂loss/∂x_i.
    From y = f(x) and dy follows dx_i = Σ_j dy_j ∂y_j/∂x_i, over every y_j that x_i changes.
    What is used several times gets the sum of its gradients.

`backward(dy)` is a function inside of the function, and sees its arguments and values. A way that is
always open: write f for one row with all indices, differentiate, sum, and find the product of arrays
that is this sum.

    npformer exercises build check      # say what is wrong, or why what is right is so
    npformer exercises build --hint 8   # the next hint of exercise 8
    npformer exercises build train      # train; what you have not written yet is given

'''


def pointer(number, part):
    """Where the hints are, and what is to be read before or afterwards."""
    page = explained(part)
    if part.name not in FORWARD:
        page = f"Read only afterwards: {PAGES}/{part.page}.md"
    return f"{page}\nHints: npformer exercises build --hint {number}"


FORWARD = ("softmax", "attention", "split_heads", "merge_heads", "layer_norm", "adam_step")


def derived(exercise, **texts):
    """An exercise of build with other texts, of which none tells the formula of a gradient."""
    mistakes = [
        replace(each, explanation=each.without_formula or each.explanation)
        for each in exercise.mistakes
    ]
    return replace(exercise, course_name=NAME, mistakes=tuple(mistakes), **texts)


SOFTMAX = derived(
    forward.SOFTMAX,
    hints=(
        "What happens to exp(x) / Σ exp(x) if the same number is subtracted from each x of a row?",
        "x.max(axis=-1, keepdims=True) has one number a row, with a shape that can be subtracted from x.",
        "e = np.exp(x - maximum); then divide e by its sum, which needs axis=-1 and keepdims=True too.",
    ),
    hint_for={"maximum|nan": 2, "sum|axis": 3},
    derivation="""
        exp(x - c) = exp(x) / exp(c). The factor 1 / exp(c) stands above and below the line of the
        quotient and cancels, so any c of a row gives the same y; with its maximum no exp is above
        1:

            c = x.max(axis=-1, keepdims=True)
            e = np.exp(x - c)
            y = e / e.sum(axis=-1, keepdims=True)
            y == softmax(x - 3)

        Of each row one e is 1, so the sum is at least 1, and is not 0.""",
)

ATTENTION = derived(
    forward.ATTENTION,
    hints=(
        "A score is a sum over K, of a query's and a key's entries: which matrix product of q and k has all of them?",
        "k.swapaxes(-1, -2) transposes the last two axes, and @ multiplies the last two of both.",
        "np.where(keep_mask, scores, -np.inf) keeps the scores where the mask is True.",
        "weights = softmax(np.where(keep_mask, q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5, "
        "-np.inf)); then weights @ v.",
    ),
    hint_for={"√|dtype": 4, "kᵀ|swapped axes": 2, "mask|forbidden|nan": 3, "softmax": 4},
    derivation="""
        A score is a sum over k: scores_ts = Σ_k q_tk k_sk / √K, so it is row t of q times column s
        of kᵀ:

            scores = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
            weights = softmax(np.where(keep_mask, scores, -np.inf))
            weights.sum(axis=-1) == 1
            y = weights @ v

        Why √K: if the entries of q and k are independent with mean 0 and variance 1, each of the K
        products has variance 1, their sum variance K, and the sum divided by √K variance 1,
        whatever K is. exp(-∞) = 0, so a forbidden key has the weight 0, and the others sum to 1.""",
)

SPLIT_HEADS = derived(
    forward.SPLIT_HEADS,
    hints=(
        "Head h has the entries h K, …, h K + K - 1 of each position: which axis of x has to become two?",
        "reshape can divide the last axis into two: (B, T, D) -> (B, T, H, K).",
        "transpose(0, 2, 1, 3) then moves the axis of the heads before that of the positions.",
    ),
    hint_for={"still after|swap": 3, "every H-th": 1, "shape": 2},
    derivation="""
        Entry h K + k of a position is entry k of head h: y[b, h, t, k] = x[b, t, h K + k]. reshape
        reads an index d of the last axis as (h, k) with d = h K + k, and transpose gives the four
        indices the order b, h, t, k:

            B, T, D = x.shape
            K = D // n_heads
            y = x.reshape(B, T, n_heads, K).transpose(0, 2, 1, 3)
            y[:, -1] == x[:, :, D - K :]

        The result is a copy of the numbers in another order, so the gradient goes back in the
        opposite order.""",
)

MERGE_HEADS = derived(
    forward.MERGE_HEADS,
    task="""
        x (B, H, T, K) -> (B, T, H K): what split_heads does, undone.""",
    hints=(
        "Undo the two steps of split_heads, the last one first.",
        "The same transpose as in split_heads (it exchanges two axes, so it is its own inverse), then a reshape.",
    ),
    hint_for={"mixes|between|become one": 2},
    derivation="""
        The inverse of two steps are their inverses in the opposite order. Exchanging the axes 1 and
        2 twice changes nothing, and a reshape is undone by a reshape:

            B, H, T, K = x.shape
            y = x.transpose(0, 2, 1, 3).reshape(B, T, H * K)
            split_heads(y, H) == x

        merge_heads is also the backward pass of split_heads. An output that is a copy of input i
        gives its gradient to input i, so the gradient of the heads, put back into the order of the
        input, is the gradient of the input. In the same way split_heads is the backward pass of
        merge_heads.""",
)

LAYER_NORM = derived(
    forward.LAYER_NORM,
    hints=(
        "Each row has a mean and a variance of its own: which axis, and how does the mean keep a shape that fits x?",
        "x.mean(axis=-1, keepdims=True) keeps the axis, so that it can be subtracted from x.",
        "rstd = 1 / np.sqrt((deviation**2).mean(axis=-1, keepdims=True) + eps); x̂ = deviation * rstd.",
    ),
    hint_for={"variance|deviation|eps": 3, "mean|axis": 2},
    derivation="""
        A row minus its mean has the mean 0, and divided by √(variance + eps) it has nearly the
        variance 1:

            eps = 1e-5
            deviation = x - x.mean(axis=-1, keepdims=True)
            variance = (deviation**2).mean(axis=-1, keepdims=True)
            x_hat = deviation / np.sqrt(variance + eps)
            x_hat.mean(axis=-1) == 0
            (x_hat**2).mean(axis=-1, keepdims=True) == variance / (variance + eps)
            y = x_hat * params["gain"] + params["bias"]

        eps keeps a row of equal numbers from being divided by 0.""",
)

CROSS_ENTROPY = derived(
    forward.CROSS_ENTROPY,
    task="""
        logits (B, T, V), targets (B, T): ids, PAD where nothing counts -> loss: a number, dlogits
        (B, T, V).

        wanted is a distribution for each target: 1 - label_smoothing for the right id, and
        label_smoothing / V for every id, also the right one. With p = softmax(logits) and n targets
        that are not PAD,

            loss = -1/n Σ wanted · log p, without the targets that are PAD

        Logits of 1000 must not overflow, nor give log 0: log p = x - log Σ exp(x), after the
        maximum is subtracted. Derive dlogits, the gradient of the loss with respect to the logits,
        also those of targets that are PAD, and return loss, dlogits.""",
    hints=(
        "Take one target alone, with the logits x: -Σ_j wanted_j log p_j with log p_j = x_j - "
        "log Σ_k exp(x_k). What is ∂ log p_j/∂x_i?",
        "∂ log p_j/∂x_i is 1 - p_i for j = i, and -p_i else. Multiply by -wanted_j, and sum "
        "over j: what is Σ_j wanted_j?",
        "np.eye(V)[targets] has a row with a single 1 for each target. counted = (targets != "
        "PAD)[..., None]; share = counted / counted.sum() is 1/n or 0.",
        "loss = -(share * wanted * log_p).sum(); the gradient of a single target is p minus wanted, times its share.",
    ),
    hint_for={
        "loss has the wrong": 4,
        "padding|PAD|number of|the mean": 3,
        "to p, not": 1,
        "wrong sign|wanted is missing|log p where|other logits": 2,
        "dlogits": 1,
        "loss is wrong": 3,
    },
    derivation="""
        Of one target, with the logits x: log p_j = x_j - log Σ_k exp(x_k). The derivative of log Σ
        exp(x_k) with respect to x_i is exp(x_i) / Σ exp(x_k) = p_i, so

          ∂ log p_j/∂x_i = δ_ij - p_i,  δ_ij = 1 if i = j, else 0

        Then -Σ_j wanted_j (δ_ij - p_i) = p_i Σ_j wanted_j - wanted_i, and as wanted sums to 1, that
        is p_i - wanted_i. The loss is a mean over n targets, so each has the factor 1/n; PAD does
        not occur in it, and has the gradient 0.

            V = logits.shape[-1]
            counted = targets != PAD
            n = counted.sum()
            wanted = (1 - label_smoothing) * np.eye(V)[targets] + label_smoothing / V
            wanted.sum(axis=-1) == 1
            shifted = logits - logits.max(axis=-1, keepdims=True)
            log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
            loss = -(wanted * log_p)[counted].sum() / n
            dlogits = np.where(counted[..., None], (np.exp(log_p) - wanted) / n, 0)""",
)

LINEAR = derived(
    backward.LINEAR,
    task="""
        params: {"weight": (D, F), "bias": (F,)}, x (..., D) -> y = x W + b (..., F), and the
        function backward.

        backward(dy), dy (..., F), returns dx (..., D) and grads = {"weight": (D, F), "bias": (F,)}.
        Weight and bias are used by every row of x, whatever axes there are before the last.""",
    hints=(
        "One row alone: y_j = Σ_i x_i W_ij + b_j. On which y_j does x_i act, and by which factor? On which does W_ij?",
        "dx_i = Σ_j dy_j W_ij. Of one row, dW_ij = x_i dy_j and db_j = dy_j; with several rows r, sum over r.",
        "x_rows = x.reshape(-1, x.shape[-1]) makes a matrix of all rows of x; the same for dy.",
        "Σ_j dy_j W_ij is the row dy times a transposed matrix; Σ_r x_ri dy_rj a transposed matrix times a matrix.",
    ),
    hint_for={"transposed": 4, "reshape|has shape|in a batch": 3, "sum": 2, "dx": 1, "grads": 2},
    derivation="""
        Of one row, y_j = Σ_i x_i W_ij + b_j. So ∂y_j/∂x_i = W_ij, and

          dx_i = Σ_j dy_j W_ij,

        which is the row dy times Wᵀ. W_ij acts on y_j of every row r, by the factor x_ri, and b_j
        by the factor 1:

          dW_ij = Σ_r x_ri dy_rj,  db_j = Σ_r dy_rj

            W = params["weight"]
            y = x @ W + params["bias"]
            dx = dy @ W.T
            x_rows = x.reshape(-1, x.shape[-1])
            dy_rows = dy.reshape(-1, dy.shape[-1])
            dx == np.einsum("...j,ij->...i", dy, W)
            x_rows.T @ dy_rows == np.einsum("ri,rj->ij", x_rows, dy_rows)
            grads = {"weight": x_rows.T @ dy_rows, "bias": dy_rows.sum(axis=0)}""",
)

LAYER_NORM_BACKWARD = derived(
    backward.LAYER_NORM_BACKWARD,
    task="""
        backward(dy), dy (..., D), returns dx (..., D) and grads = {"gain": (D,), "bias": (D,)}. It
        remembers x̂ and rstd = 1 / √(variance + eps) of the forward pass. Every row uses the same
        gain and bias; mean and variance depend on every entry of their row.""",
    hints=(
        "Two steps: y = x̂ · gain + bias gives dgain, dbias and dx̂ as for a linear map, entry "
        "by entry. For x̂ take one row, x̂_j = r (x_j - m) with r = rstd and m the mean: x_i "
        "acts on x_j, on m and on r.",
        "∂m/∂x_i = 1/D. With the variance v = mean((x - m)²) it is ∂v/∂x_i = 2/D (x_i - m), as "
        "deviations sum to 0; and r = (v + eps)^(-1/2) gives ∂r/∂x_i = -1/2 r³ ∂v/∂x_i.",
        "Together ∂x̂_j/∂x_i = r (δ_ij - 1/D - x̂_i x̂_j / D), δ_ij = 1 if i = j, else 0. "
        "Multiply by dx̂_j, and sum over j: two of the sums are means.",
        "dx is rstd times: dx̂ minus its mean, minus x̂ times a mean of a product. The means "
        "need axis=-1 and keepdims=True; rows = tuple(range(dy.ndim - 1)) are the axes over "
        "which dgain and dbias are sums.",
    ),
    hint_for={
        "axes|rows|has shape": 4,
        "factor 2|factor 1/2": 2,
        "wrong sign|√|root|sums are|x̂ is missing": 3,
        "gain|bias": 1,
        "missing|dx": 2,
    },
    derivation="""
        Gain and bias: y = x̂ · gain + bias, used by every row, so dgain = Σ dy · x̂ and dbias = Σ
        dy over the rows, and dx̂ = dy · gain. For x̂ take one row: x̂_j = r (x_j - m) with the mean
        m and r = (v + eps)^(-1/2). Then

          ∂m/∂x_i = 1/D
          ∂v/∂x_i = 2/D (x_i - m),  as the part that comes through m has the factor Σ (x_j - m) = 0
          ∂r/∂x_i = -1/2 r³ ∂v/∂x_i = -r³ (x_i - m) / D = -r² x̂_i / D
          ∂x̂_j/∂x_i = r (δ_ij - 1/D) + (x_j - m) ∂r/∂x_i = r (δ_ij - 1/D - x̂_i x̂_j / D)

        where δ_ij is 1 if i = j, and 0 else. The sum over j of dx̂_j times that has the means of
        dx̂ and of dx̂ · x̂ in it:

            D = x.shape[-1]
            rstd = 1 / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
            x_hat = (x - x.mean(axis=-1, keepdims=True)) * rstd
            y = x_hat * params["gain"] + params["bias"]
            dx_hat = dy * params["gain"]
            mean = dx_hat.mean(axis=-1, keepdims=True)
            slope = (dx_hat * x_hat).mean(axis=-1, keepdims=True)
            dx = rstd * (dx_hat - mean - x_hat * slope)
            products = x_hat[..., None] * x_hat[..., None, :]
            of_x_hat = rstd[..., None] * (np.eye(D) - 1 / D - products / D)
            dx == np.einsum("...j,...ij->...i", dx_hat, of_x_hat)
            rows = tuple(range(dy.ndim - 1))
            grads = {"gain": (dy * x_hat).sum(axis=rows), "bias": dy.sum(axis=rows)}""",
)

ATTENTION_BACKWARD = derived(
    backward.ATTENTION_BACKWARD,
    task="""
        backward(dout), dout (B, H, T, K), the gradient of y, returns dq, dk, dv, each of the shape
        of its array. The forward pass has three steps; go back through them one by one, the last
        one first:

            scores = q kᵀ / √K, and -inf where keep_mask is False
            weights = softmax(scores);  y = weights v""",
    hints=(
        "The first and the last step are products of matrices. For y = a b with y_tk = Σ_s a_ts"
        " b_sk: which y does a_ts act on, and which b_sk? That gives dweights and dv, and later"
        " dq and dk.",
        "Softmax of one row: y_j = e_j / Σ e. ∂y_j/∂x_i = y_j (δ_ij - y_i), δ_ij = 1 if i = j, "
        "else 0: a weight depends on all scores of its row. Multiply by dweights_j, and sum "
        "over j.",
        "dweights = dout vᵀ, dv = weightsᵀ dout. The sum of softmax, Σ_j dweights_j weights_j, "
        "needs axis=-1 and keepdims=True. Where the mask is False the weight is 0, so nothing "
        "else has to be done.",
        "dscores = weights * (dweights - that sum). dq is dscores times k, dk dscores "
        "transposed times q: each score has the factor 1/√K, so both have.",
    ),
    hint_for={
        "√K": 4,
        "dv|the sum of softmax|mean where|axis": 3,
        "softmax|of a weight": 2,
        "transposition|exchanged|dk": 1,
        "dq": 2,
    },
    derivation="""
        y_tk = Σ_s w_ts v_sk, so w_ts acts on y_tk of all k by v_sk, and v_sk on y_tk of all t by
        w_ts:

          dw_ts = Σ_k dout_tk v_sk,  dv_sk = Σ_t w_ts dout_tk

        Softmax of a row: w_j = exp(z_j) / S with S = Σ exp(z). By the rule of the quotient, with
        δ_ij = 1 if i = j, and 0 else,

          ∂w_j/∂z_i = δ_ij exp(z_j) / S - exp(z_j) exp(z_i) / S² = w_j (δ_ij - w_i)
          dz_i = Σ_j dw_j w_j (δ_ij - w_i) = w_i (dw_i - Σ_j dw_j w_j)

        Where the mask is False, w_i = 0, and dz_i = 0 by itself. The scores are a product again,
        and a constant: z_ts = Σ_k q_tk k_sk / √K, so

          dq_tk = Σ_s dz_ts k_sk / √K,  dk_sk = Σ_t dz_ts q_tk / √K

            scale = 1 / np.sqrt(q.shape[-1])
            weights = softmax(np.where(keep_mask, scale * q @ k.swapaxes(-1, -2), -np.inf))
            y = weights @ v
            dweights = dout @ v.swapaxes(-1, -2)
            dv = weights.swapaxes(-1, -2) @ dout
            dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
            dscores.sum(axis=-1) == 0
            dq = scale * dscores @ k
            dk = scale * dscores.swapaxes(-1, -2) @ q
            dq == scale * np.einsum("bhts,bhsk->bhtk", dscores, k)
            dk == scale * np.einsum("bhts,bhtk->bhsk", dscores, q)""",
)

FEED_FORWARD = derived(
    layers.FEED_FORWARD,
    task="""
        params: {"hidden": …, "out": …}, the parameters of two linear maps, x (B, T, D) -> y (B, T,
        D), and backward.

            h = x W₁ + b₁;  y = relu(h) W₂ + b₂, with relu(h) = max(h, 0)

        Call linear twice, and keep both functions that it returns. backward(dy) returns dx and
        grads = {"hidden": …, "out": …}. Where h is exactly 0, take the derivative of relu to be 0.""",
    hints=(
        "Three steps, hidden, relu, out: each has its own backward pass, and the last step is "
        "the first to go back through.",
        "Relu acts on each entry alone: its derivative is 1 where h > 0, and 0 elsewhere. What "
        "does that make of a gradient?",
        'h, hidden_backward = linear(params["hidden"], x), and the same for out with np.maximum(h, 0).',
        "drelu, out_grads = out_backward(dy); keep drelu where h > 0, put 0 elsewhere, and call"
        " hidden_backward with it.",
    ),
    hint_for={"relu is missing": 3, "two maps": 4, "relu|sign of h": 2, "y is wrong": 3},
    derivation="""
        y = out(relu(hidden(x))): the chain rule goes through the three in the opposite order. Relu
        changes each entry alone, r_i = max(h_i, 0), so dh_i = dr_i ∂r_i/∂h_i, which is dr_i where
        h_i > 0 and 0 elsewhere. It is h that decides, which backward therefore remembers:

            h, hidden_backward = linear(params["hidden"], x)
            y, out_backward = linear(params["out"], np.maximum(h, 0))
            drelu, out_grads = out_backward(dy)
            dh = drelu * (h > 0)
            dx, hidden_grads = hidden_backward(dh)
            grads = {"hidden": hidden_grads, "out": out_grads}""",
)

SELF_ATTENTION = derived(
    layers.SELF_ATTENTION,
    task="""
        params: {"qkv": …, "out": …}, of the maps D -> 3D and D -> D, x (B, T, D), keep_mask,
        n_heads -> y (B, T, D), and backward.

        One linear map gives q, k, v side by side; split it into three, each into heads; attention;
        merge the heads; the linear map out. backward(dy) returns dx and grads = {"qkv": …, "out":
        …}; it has a step for each of these.""",
    hints=(
        "List the steps forward, then the same in the opposite order: each step back is the "
        "backward pass of one forward. split_heads and merge_heads only move numbers: what "
        "moves them back?",
        "np.split(qkv, 3, axis=-1) gives the three parts; split_heads(part, n_heads) for each. "
        "Keep the backward functions of the two maps and of attention.",
        "dheads, out_grads = out_backward(dy); attention's backward function gets dheads, split into heads again.",
        "Merge the heads of dq, dk and dv; q, k, v were side by side, so np.concatenate the "
        "three along the last axis, and call qkv_backward.",
    ),
    hint_for={
        "split qkv|three parts|alternate": 2,
        "has to be split|into the order": 3,
        "merged before|put back|side by side|another order": 4,
        "y is wrong": 2,
        "dx": 3,
    },
    derivation="""
        Each step forward has one back, in the opposite order. Merging and splitting heads only move
        numbers, so each is the backward pass of the other. To divide qkv into three parts is to
        move numbers, too: its backward pass puts the three gradients side by side, as q, k, v were.

            qkv, qkv_backward = linear(params["qkv"], x)
            q, k, v = [split_heads(part, n_heads) for part in np.split(qkv, 3, axis=-1)]
            heads, heads_backward = attention(q, k, v, keep_mask)
            y, out_backward = linear(params["out"], merge_heads(heads))
            dmerged, out_grads = out_backward(dy)
            dq, dk, dv = heads_backward(split_heads(dmerged, n_heads))
            dqkv = np.concatenate([merge_heads(dq), merge_heads(dk), merge_heads(dv)], axis=-1)
            dx, qkv_grads = qkv_backward(dqkv)
            grads = {"qkv": qkv_grads, "out": out_grads}
            (dq * q).sum() == (merge_heads(dq) * merge_heads(q)).sum()""",
)

ENCODER_LAYER = derived(
    layers.ENCODER_LAYER,
    task="""
        params: those of attention, attention_norm, feed_forward, feed_forward_norm, under these
        names; x0 (B, T, D), keep_mask, n_heads -> x2 (B, T, D), and backward.

            x1 = norm(x0 + attention(x0));  x2 = norm(x1 + feed_forward(x1))

        backward(dx2) returns dx0 and grads, a dict with the four names of params. In the forward
        part give each value its own name: backward sees the last value of a name.""",
    hints=(
        "x0 and x1 each go two ways, into a sublayer and past it. What is the gradient of what "
        "is used twice, and what does a sum a + b make of its gradient?",
        "Four lines forward; each keeps its backward function, and backward calls them in the opposite order.",
        "norm2_backward(dx2) gives the gradient dsum of x1 + fed, which is that of both terms: "
        "dx1 is dsum plus what the backward function of feed_forward makes of dsum.",
        "norm1_backward(dx1) gives the gradient of x0 + attended, with which the same happens again.",
    ),
    hint_for={
        "x0 and x1": 1,
        "x0 is used": 4,
        "x1 is used": 3,
        "past the attention": 4,
        "past the feed-forward": 3,
        "attention gets": 4,
        "feed-forward layer gets|second normalisation": 3,
        "dx0": 4,
        "not written": 2,
    },
    derivation="""
        s = a + b has ∂s/∂a = ∂s/∂b = 1, so both terms get ds. x1 acts on x2 in two ways, as a term
        of the sum and through the feed-forward layer, so its gradient is the sum of two:

          dx1 = ds + (what the feed-forward layer's backward pass makes of ds)

        and the same for x0. The way past the sublayer is why a gradient reaches the first layers of
        a deep model.

            attended, attended_back = self_attention(params["attention"], x0, keep_mask, n_heads)
            x1, norm1_back = layer_norm(params["attention_norm"], x0 + attended)
            fed, fed_back = feed_forward(params["feed_forward"], x1)
            x2, norm2_back = layer_norm(params["feed_forward_norm"], x1 + fed)
            grads = {}
            dsum, grads["feed_forward_norm"] = norm2_back(dx2)
            through, grads["feed_forward"] = fed_back(dsum)
            dx1 = dsum + through
            dsum, grads["attention_norm"] = norm1_back(dx1)
            through, grads["attention"] = attended_back(dsum)
            dx0 = dsum + through""",
)

TRANSFORMER = derived(
    layers.TRANSFORMER,
    task="""
        params: source_embedding, target_embedding, encoder and decoder ({"0": …, "1": …}, a layer
        each), output; src (B, S) and tgt_in (B, T): ids, n_heads -> logits (B, T, V) of each next
        token, and backward.

        Masks: is_src (B, 1, 1, S) and is_tgt (B, 1, 1, T), where an id is not PAD; is_past (T, T),
        True on and below the diagonal.
        Encoder: embed(params["source_embedding"], src), then each encoder_layer with is_src; the
        result is the memory.
        Decoder: embed(params["target_embedding"], tgt_in), then each decoder_layer(params, x,
        memory, is_past & is_tgt, is_src, n_heads), then linear(params["output"], x).

        embed and decoder_layer are in this file. Keep every backward function in a list. That of an
        encoder layer returns dx, grads, that of a decoder layer dx, dmemory, grads, and that of an
        embedding the gradient of its table. backward(dlogits) returns grads, with the names of
        params.""",
    hints=(
        "Draw the way of the numbers, each box with its inputs. Which value has an arrow to more than one box?",
        "is_src = (src != PAD)[:, None, None, :]; is_past = np.tri(tgt_in.shape[1], "
        'dtype=bool). In a loop, memory, backward = encoder_layer(params["encoder"][str(i)], '
        "memory, is_src, n_heads); append backward to a list.",
        'Begin backward with grads = {"encoder": {}, "decoder": {}} and dmemory = '
        "np.zeros_like(memory). Every decoder layer reads the memory, so its gradient is the "
        "sum of theirs; the layers go for i in reversed(range(n)).",
        "After the decoder's layers dx belongs to the target's embedding, and dmemory goes back"
        " through the encoder's layers; what comes out of them belongs to the source's.",
    ),
    hint_for={
        "mask|padding|attend": 2,
        "embedding": 4,
        "memory|reverse|decoder": 3,
        "encoder": 4,
        "not written": 3,
    },
    derivation="""
        The encoder is a chain, so its backward functions follow each other in the opposite order;
        the decoder is one, too. The memory is what has several uses: every decoder layer reads it,
        so its gradient is the sum of those that the layers return, and it is whole only when the
        last of them, which is the first layer, was gone through.

            is_src = (src != PAD)[:, None, None, :]
            is_tgt = np.tri(tgt_in.shape[1], dtype=bool) & (tgt_in != PAD)[:, None, None, :]
            memory, source_back = embed(params["source_embedding"], src)
            x, target_back = embed(params["target_embedding"], tgt_in)
            encoder, decoder = [], []
            for i, layer in params["encoder"].items():
                memory, back = encoder_layer(layer, memory, is_src, n_heads)
                encoder = [(i, back), *encoder]  # the last layer stands first
            for i, layer in params["decoder"].items():
                x, back = decoder_layer(layer, x, memory, is_tgt, is_src, n_heads)
                decoder = [(i, back), *decoder]
            logits, output_back = linear(params["output"], x)
            grads = {"encoder": {}, "decoder": {}}
            dx, grads["output"] = output_back(dlogits)
            dmemory = 0
            for i, back in decoder:
                dx, dread, grads["decoder"][i] = back(dx)
                dmemory = dmemory + dread
            for i, back in encoder:
                dmemory, grads["encoder"][i] = back(dmemory)
            grads["target_embedding"] = target_back(dx)
            grads["source_embedding"] = source_back(dmemory)""",
)

ADAM_STEP = derived(
    layers.ADAM_STEP,
    hints=(
        "params and grads are nested dicts: what has to be done for an entry that is a dict, and what for an array?",
        "for name, g in grads.items(): if isinstance(g, dict), call adam_step, and continue.",
        "m, v = means.get(name, (0.0, 0.0)), and at the end means[name] = m, v; "
        "means.setdefault(name, {}) is an inner dict's. params[name] -= … changes the array "
        "itself.",
    ),
    hint_for={"means|kept|arrays of params": 3},
    derivation="""
        Why the correction: m begins with 0, so it is too small at first. After steps with the
        gradients g_1, …, g_t

          m = (1 - beta1) (g_t + beta1 g_(t-1) + … + beta1^(t-1) g_1)

        and the weights sum to 1 - beta1^t, the sum of a geometric series, not to 1. Divided by
        that, m̂ is a mean: with equal gradients m̂ = g from the first step on, and v̂ = g², so that
        the first step has the size lr.

            g = grads["d"]
            m = (1 - beta1) * g
            m / (1 - beta1) == g
            m = beta1 * m + (1 - beta1) * g
            m / (1 - beta1**2) == g
            m = beta1 * m + (1 - beta1) * g
            m / (1 - beta1**3) == g""",
)

DERIVE = Course(
    name=NAME,
    command="build",
    file_name="transformer.py",
    mark="npformer exercises build --hint",
    page=PAGE,
    exercises=(
        SOFTMAX,
        ATTENTION,
        SPLIT_HEADS,
        MERGE_HEADS,
        LAYER_NORM,
        CROSS_ENTROPY,
        LINEAR,
        LAYER_NORM_BACKWARD,
        ATTENTION_BACKWARD,
        FEED_FORWARD,
        SELF_ATTENTION,
        ENCODER_LAYER,
        TRANSFORMER,
        ADAM_STEP,
    ),
    title="your own Transformer, whose gradients you derive",
    header=HEADER,
    meaning="begin it without the formulas of the gradients, which you derive",
    exercises_first=True,
    pointer=pointer,
)
