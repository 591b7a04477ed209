"""The word e₂ of the book on its way through an encoder layer, and its gradient on the way back."""

import numpy as np

from npformer.exercises.transformer.page import PAGE

page = PAGE.module
SENTENCE = 'e₂ of "that is a good idea"'
# The loss is ½ |e₂′ - target|², as in docs/gradients/residual.md.
TARGET = np.array([0.0, 1.0, -1.0])

e = np.array([[1.0, 0, 1], [0, 1, 1], [1, 1, 0], [0, 2, 0], [2, 0, 0]])
W_q = np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]])
W_k = np.array([[1.0, 0, 0], [0, 1, 0], [1, 0, 1]])
W_v = np.array([[1.0, 0, 0], [0, 1, 1], [0, 0, 1]])
W1 = np.array([[1.0, -1, 0, 0], [0, 1, -1, 1], [0, 0, 1, 1]])
W2 = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1]])
b1 = np.array([0.0, 0, 0, -0.5])
unit = {"gain": np.ones(3), "bias": np.zeros(3)}

# Forward: the six steps of docs/model/layers.md.
q, k, v = e[1] @ W_q, e @ W_k, e @ W_v
a = page.softmax(k @ q / np.sqrt(3))
s1 = e[1] + a @ v
x2, norm1_backward = page.layer_norm(unit, s1)
maps = {"hidden": {"weight": W1, "bias": b1}, "out": {"weight": W2, "bias": np.zeros(3)}}
fed, feed_backward = page.feed_forward(maps, x2)
s2 = x2 + fed
y, norm2_backward = page.layer_norm(unit, s2)

# Backward: what one step returns is what the next one gets.
dy = y - TARGET
ds2, _ = norm2_backward(dy)
dx2 = ds2 + feed_backward(ds2)[0]
ds1, _ = norm1_backward(dx2)
da, dv = v @ ds1, np.outer(a, ds1)
dscores = a * (da - a @ da) / np.sqrt(3)
dq, dk = dscores @ k, np.outer(dscores, q)
