"""What is told of mistakes that persons make in several exercises."""

# Softmax and attention
OVERFLOW = "exp overflows: subtract each row's maximum first"
SUM_OF_ALL = "the sum is taken over the whole array, not over each row"
NO_SOFTMAX = "the softmax is missing: the weights of a query have to sum to 1"
NOT_DIVIDED = "the scores are not divided by √K"
DIVIDED_BY_K = "the scores are divided by K, not by √K"
MULTIPLIED_BY_ROOT = "the scores are multiplied by √K, not divided by it"
NO_FACTOR_IN_DQ_AND_DK = "the factor 1/√K is missing in dq and dk"
OWN_SCORE_ONLY = (
    "this is the derivative of a weight with respect to its own score: "
    "it depends on all scores of its row"
)

# Heads
HEADS_STILL_BEHIND = "the axis of the heads is still after that of the positions"
HEADS_FIRST = "the axis of the heads has to come first"
FLOAT_WIDTH = "D / n_heads is a float, and shapes are integers: D // n_heads"
EVERY_HTH = "a head takes every H-th number; it should take K neighbouring ones"
NOT_SPLIT_AGAIN = (
    "the gradient of the merged heads has to be split before it goes back through attention"
)
NOT_MERGED_AGAIN = "dq, dk, dv have to be merged before they go back through the map qkv"

# Maps and layers
NOT_TRANSPOSED = "dx = dy Wᵀ: the weight is not transposed"
AXES_OF_A_BATCH = "with a batch, x.T reverses all axes: first reshape x and dy to (rows, …)"
MORE_AXES = "in a batch there are more axes than the first to sum over: all but the last"
MAPS_EXCHANGED = "the gradients of the two maps are exchanged"
NO_ATTENDED = "the result of the attention is missing: x0 + attended"
NO_FED = "the result of the feed-forward layer is missing: x1 + fed"
FED_ADDED_TO_X0 = "the feed-forward layer's result is added to x1, not to x0"
NOT_THROUGH_FEED_FORWARD = "x1 is used twice: what comes through the feed-forward layer is missing"

# Normalisation
VARIANCE_OF_ALL = "this is the variance of the whole array: each row has its own, axis=-1"
NO_MEAN_IN_DX = "the term of the mean is missing in dx: mean(dx̂)"
NO_GAIN_IN_DX = "the gain is missing in dx: dx̂ = dy · gain"
SUMS_FOR_MEANS = "sums are subtracted where means are expected"
X_FOR_X_HAT = "dgain uses x instead of x̂"

# The loss, and training
SIGN_OF_GRADIENT = "the gradient has the wrong sign: p - wanted"
LOG_OF_0 = (
    "log(softmax) is log(0) for an improbable word: compute x - log Σ exp(x) without the quotient"
)
PADDING_COUNTS = "padding counts like a word"
PADDING_IS_0 = "the padding is taken to be 0: use pad_id"
NO_CORRECTION_OF_M = "the bias correction of m is missing"
NO_CORRECTION_OF_V = "the bias correction of v is missing"
EXPONENT_TOO_LARGE = (
    "the exponent of the bias correction is one too large: step is 1 for the first step"
)
EPS_IN_ROOT = "eps belongs outside of the root here: √v̂ + eps"

# Writing
BEGIN_IS_KEPT = "the begin token is not generated: leave it out of the result"
