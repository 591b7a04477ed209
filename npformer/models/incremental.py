"""The Transformer's decoder a token at a time: what earlier tokens have computed is kept, not computed again."""

import numpy as np

from npformer.reference import padding_mask
from npformer.reference.checks import check_ids


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
            ops.linear(memory, kv["weight"], kv["bias"]).reshape(-1, 2 * model.d_model)
            for kv in (layer["memory_attention"]["kv"] for layer in self.layers)
        ]
        self.memory_at = np.arange(src.size).reshape(src.shape)  # where in it the words of each row's source are
        self.memory_mask = padding_mask(src, model.pad_id)[:, 0, 0]
        self.max_rows, self.max_len = max_rows, max_len
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
        if not 0 < len(tokens) == len(parents) <= self.max_rows:
            given = f"{len(tokens)} tokens, {len(parents)} parents"
            raise ValueError(f"{given}: expected as many, at most max_rows={self.max_rows}")
        check_ids(parents, len(self.at), "parents")
        if t == self.max_len:
            raise ValueError(f"step {t + 1}, expected at most max_len={self.max_len}")
        new_at = t * self.max_rows + np.arange(len(tokens))
        self.at = np.concatenate([self.at[parents], new_at[:, None]], axis=1)
        self.memory_at, self.memory_mask = self.memory_at[parents], self.memory_mask[parents]
        self.n_steps += 1

        _, table, output = model.tables(self.params)
        x = ops.embed_tokens(tokens[:, None], table, model.positions[t : t + 1], model.pad_id)[:, 0]
        options = {"n_heads": model.n_heads, "norm": model.norm, "activation": model.activation}
        memory_at = self.memory_at, self.memory_mask
        for layer, kv, memory_kv in zip(self.layers, self.kv, self.memory_kv, strict=True):
            x = ops.decoder_layer_step(x, layer, kv, self.at, memory_kv, *memory_at, **options)
        if model.norm == "pre":
            norm = self.params["decoder"]["norm"]
            x, _, _ = ops.layer_norm(x, norm["gain"], norm["bias"])
        return ops.linear(x, output, self.params["output"]["bias"])
