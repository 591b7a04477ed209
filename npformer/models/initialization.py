"""Where the numbers of a new model come from."""

import math

import numpy as np


class Initializer:
    """Draws parameters from one seed, in the order in which they are asked for."""

    def __init__(self, seed, dtype):
        self.rng = np.random.default_rng(seed)
        self.dtype = np.dtype(dtype)
        self.gates = 1  # inputs of an activation for one result

    def linear(self, d_in, *d_outs):
        """Projections that read the same input, side by side: each Xavier uniform (Glorot and Bengio 2010), bias 0."""
        return {
            "weight": np.concatenate([self._xavier(d_in, d_out) for d_out in d_outs], axis=1),
            "bias": np.zeros(sum(d_outs), self.dtype),
        }

    def _xavier(self, d_in, d_out):
        bound = math.sqrt(6 / (d_in + d_out))
        return self.rng.uniform(-bound, bound, (d_in, d_out)).astype(self.dtype)

    def embedding(self, vocab, d_model):
        """Variance 1/D, so that entries have variance 1 once they are scaled by √D."""
        return (self.rng.standard_normal((vocab, d_model)) / math.sqrt(d_model)).astype(self.dtype)

    def layer_norm(self, d_model):
        """Gain 1, bias 0."""
        return {"gain": np.ones(d_model, self.dtype), "bias": np.zeros(d_model, self.dtype)}

    def recurrence(self, d_in, d_out, cell):
        """A recurrent layer: the map of its input, and that of its state, which is orthogonal for each gate.

        An orthogonal map keeps the length of what passes through it again and again (Saxe et al. 2014). The forget
        gate of an LSTM begins open, with bias 1 (Jozefowicz et al. 2015).
        """
        n_gates = {"gru": 3, "lstm": 4}[cell]
        params = {
            "input": self.linear(d_in, *[d_out] * n_gates),
            "hidden": {"weight": np.concatenate([self._orthogonal(d_out) for _ in range(n_gates)], axis=1)},
        }
        if cell == "gru":
            params["hidden"]["bias"] = np.zeros(d_out, self.dtype)
        else:
            params["input"]["bias"][d_out : 2 * d_out] = 1
        return params

    def _orthogonal(self, d):
        q, r = np.linalg.qr(self.rng.standard_normal((d, d)))
        return (q * np.sign(np.diag(r))).astype(self.dtype)

    def score(self, name, d_model):
        """What a recurrent model's attention learns: nothing, a bridge, or a hidden layer as wide as the states."""
        if name == "dot":
            return {}
        if name == "general":
            return {"weight": self._xavier(d_model, d_model)}
        w_q, w_k = self._xavier(d_model, d_model), self._xavier(d_model, d_model)
        return {"w_q": w_q, "w_k": w_k, "w_score": self._xavier(d_model, 1)[:, 0]}

    def self_attention(self, d_model):
        """Projections to queries, keys and values, and the output projection."""
        return {"qkv": self.linear(d_model, d_model, d_model, d_model), "out": self.linear(d_model, d_model)}

    def memory_attention(self, d_model):
        """The same, with the keys and values read from another input."""
        return {
            "q": self.linear(d_model, d_model),
            "kv": self.linear(d_model, d_model, d_model),
            "out": self.linear(d_model, d_model),
        }

    def feed_forward(self, d_model, d_ff):
        """The hidden layer, as wide as the activation takes it, and the output."""
        return {"hidden": self.linear(d_model, *[d_ff] * self.gates), "out": self.linear(d_ff, d_model)}

    def conv1d(self, n_taps, d_in, d_out):
        """A projection for each tap, all of which add up: Xavier uniform, n_taps · d_in in and n_taps · d_out out."""
        bound = math.sqrt(6 / (n_taps * (d_in + d_out)))
        weight = self.rng.uniform(-bound, bound, (n_taps, d_in, d_out)).astype(self.dtype)
        return {"weight": weight, "bias": np.zeros(d_out, self.dtype)}

    def residual_conv_block(self, d_model, n_taps):
        """To half the width, a convolution there, and back, each after its normalisation."""
        inner = d_model // 2
        return {
            "reduce_norm": self.layer_norm(d_model),
            "reduce": self.linear(d_model, inner),
            "conv_norm": self.layer_norm(inner),
            "conv": self.conv1d(n_taps, inner, inner),
            "expand_norm": self.layer_norm(inner),
            "expand": self.linear(inner, d_model),
        }

    def encoder_layer(self, d_model, d_ff):
        """Self-attention and feed-forward, each with its normalisation."""
        return {
            "attention": self.self_attention(d_model),
            "attention_norm": self.layer_norm(d_model),
            "feed_forward": self.feed_forward(d_model, d_ff),
            "feed_forward_norm": self.layer_norm(d_model),
        }

    def decoder_layer(self, d_model, d_ff):
        """The same, with attention to the encoder's output in between."""
        return {
            "attention": self.self_attention(d_model),
            "attention_norm": self.layer_norm(d_model),
            "memory_attention": self.memory_attention(d_model),
            "memory_attention_norm": self.layer_norm(d_model),
            "feed_forward": self.feed_forward(d_model, d_ff),
            "feed_forward_norm": self.layer_norm(d_model),
        }
