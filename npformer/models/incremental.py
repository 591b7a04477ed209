"""The Transformer's decoder a token at a time: what earlier tokens have computed is kept, not computed again."""

import numpy as np

from npformer.reference import padding_mask


class IncrementalDecoder:
    """The decoder of a ``Transformer`` on a growing target; ``Transformer.decoder`` makes one.

    Each step appends one token to each of its rows. A row goes on from any row of the step before: beams part, and
    rows that are finished are simply not gone on from. Keys and values of all tokens stay where they were written;
    each row knows where those of its own past are.

    Parameters
    ----------
    model : Transformer
    ops : module
    params : nested dict
    src : (B, S) int
    max_rows : int
        Most rows of a step.
    max_len : int
        Most steps.
    """

    def __init__(self, model, ops, params, src, max_rows, max_len):
        self.model, self.ops, self.params = model, ops, params
        self.layers = [params["decoder"][str(i)] for i in range(model.depths[1])]
        memory = model.encode(params, src, backend=ops)
        self.memory_kv = [  # once for all steps
            self._linear(layer["memory_attention"]["kv"], memory).reshape(-1, 2 * model.d_model)
            for layer in self.layers
        ]
        self.memory_at = np.arange(src.size).reshape(src.shape)  # where in it the words of each row's source are
        self.memory_mask = padding_mask(src, model.pad_id)[:, 0, 0]
        self.max_rows = max_rows
        self.kv = np.empty((len(self.layers), max_len * max_rows, 2 * model.d_model), model.dtype)
        self.at = np.empty((len(src), 0), np.int64)  # where in it the tokens of each row are
        self.n_steps = 0

    def step(self, tokens, parents):
        """Append a token to each row.

        Parameters
        ----------
        tokens : (R,) int
            The begin token in the first step.
        parents : (R,) int
            Which row of the step before each row goes on from; in the first step which source.

        Returns
        -------
        logits : (R, V)
            Of the token after these.
        """
        model, ops, t = self.model, self.ops, self.n_steps
        new_at = t * self.max_rows + np.arange(len(tokens))
        self.at = np.concatenate([self.at[parents], new_at[:, None]], axis=1)
        self.memory_at, self.memory_mask = self.memory_at[parents], self.memory_mask[parents]
        self.n_steps += 1

        _, table, output = model.tables(self.params)
        x = ops.embed_tokens(tokens[:, None], table, model.positions[t : t + 1], model.pad_id)[:, 0]
        for i, layer in enumerate(self.layers):
            x = self._layer(i, layer, x, slice(new_at[0], new_at[-1] + 1))
        if model.norm == "pre":
            x = self._norm(self.params["decoder"]["norm"], x)
        return ops.linear(x, output, self.params["output"]["bias"])

    def _layer(self, i, params, x0, new):
        """``layers.decoder_layer`` for the newest token."""
        model, ops, D = self.model, self.ops, self.model.d_model

        def attend(h, residual):
            qkv = self._linear(params["attention"]["qkv"], h)
            self.kv[i, new] = qkv[:, D:]
            heads = ops.cached_attention(qkv[:, :D], self.kv[i], self.at, model.n_heads)
            return self._linear(params["attention"]["out"], heads, residual)

        def attend_memory(h, residual):
            q = self._linear(params["memory_attention"]["q"], h)
            heads = ops.cached_attention(q, self.memory_kv[i], self.memory_at, model.n_heads, self.memory_mask)
            return self._linear(params["memory_attention"]["out"], heads, residual)

        def feed(h, residual):
            hidden, out = params["feed_forward"]["hidden"], params["feed_forward"]["out"]
            a, _ = ops.linear_activation_dropout(h, hidden["weight"], hidden["bias"], model.activation)
            return self._linear(out, a, residual)

        x1 = self._residual_block(params["attention_norm"], x0, attend)
        x2 = self._residual_block(params["memory_attention_norm"], x1, attend_memory)
        return self._residual_block(params["feed_forward_norm"], x2, feed)

    def _residual_block(self, norm_params, x, sublayer):
        if self.model.norm == "pre":
            return sublayer(self._norm(norm_params, x), x)
        return self._norm(norm_params, sublayer(x, x))

    def _linear(self, params, x, residual=None):
        if residual is None:
            return self.ops.linear(x, params["weight"], params["bias"])
        return self.ops.linear_dropout_residual(x, params["weight"], params["bias"], residual)

    def _norm(self, params, x):
        return self.ops.layer_norm(x, params["gain"], params["bias"])[0]
