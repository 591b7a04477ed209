"""GPT-2 of transformers, with the parameters of an ``npformer.LanguageModel`` of the same shape."""

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from scripts.bench.machine import physical_cores

MAPS = {"attention.qkv": "attn.c_attn", "attention.out": "attn.c_proj"}
MAPS |= {"feed_forward.hidden": "mlp.c_fc", "feed_forward.out": "mlp.c_proj"}
GELU = "gelu_pytorch_tanh"  # the same function as "gelu_new", in one pass
NORMS = {"attention_norm": "ln_1", "feed_forward_norm": "ln_2"}


def twin(model, params):
    """The model with the same parameters."""
    torch.set_num_threads(physical_cores())
    shape = {"vocab_size": model.vocab, "n_positions": model.max_len, "n_embd": model.d_model}
    shape |= {"n_head": model.n_heads, "n_layer": model.n_layers, "n_inner": model.d_ff, "activation_function": GELU}
    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = GPT2Config(**shape, **rates, bos_token_id=None, eos_token_id=None)
    network = GPT2LMHeadModel(config)
    state = {"wte.weight": params["embedding"], "wpe.weight": params["positions"]}
    for i in range(model.n_layers):
        layer = params["layers"][str(i)]
        for ours, theirs in MAPS.items():
            sublayer, name = ours.split(".")
            state |= {f"h.{i}.{theirs}.{key}": x for key, x in layer[sublayer][name].items()}
        for ours, theirs in NORMS.items():
            state |= {f"h.{i}.{theirs}.weight": layer[ours]["gain"], f"h.{i}.{theirs}.bias": layer[ours]["bias"]}
    norm = params["layers"]["norm"]
    state |= {"ln_f.weight": norm["gain"], "ln_f.bias": norm["bias"]}
    tensors = {f"transformer.{name}": torch.from_numpy(np.array(x)) for name, x in state.items()}
    network.load_state_dict(tensors | {"lm_head.weight": tensors["transformer.wte.weight"]})
    return network


def training_step(model, params, ids, lr, weight_decay, clip_norm):
    """A step with AdamW, that returns its loss."""
    network = twin(model, params).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=lr, weight_decay=weight_decay, fused=True)
    inputs, targets = torch.from_numpy(ids[:, :-1]), torch.from_numpy(ids[:, 1:]).reshape(-1)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(network(inputs, use_cache=False).logits.flatten(0, 1), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), clip_norm)
        optimizer.step()
        return loss.item()

    return step


def generation(model, params, prompt, n):
    """Greedy generation with the cache, that returns the new tokens."""
    network, prompt = twin(model, params).eval(), torch.from_numpy(prompt)

    @torch.inference_mode()
    def generate():
        options = {"max_new_tokens": n, "min_new_tokens": n, "do_sample": False, "use_cache": True, "pad_token_id": 0}
        return network.generate(prompt, **options)[0, prompt.shape[1] :].numpy()

    return generate
