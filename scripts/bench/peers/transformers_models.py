"""Models of transformers from their folders, in float32 and PyTorch's eager mode."""

import torch
from transformers import AutoModel, AutoModelForCausalLM

from scripts.bench.machine import physical_cores


def training_step(folder, ids, lr, weight_decay, clip_norm, **settings):
    """A step with AdamW, that returns its loss."""
    network = loaded(AutoModelForCausalLM, folder, **settings).train()
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=lr, weight_decay=weight_decay, fused=True
    )
    inputs = torch.from_numpy(ids[:, :-1])
    targets = torch.from_numpy(ids[:, 1:]).reshape(-1)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(
            network(inputs, use_cache=False).logits.flatten(0, 1), targets
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), clip_norm)
        optimizer.step()
        return loss.item()

    return step


def generation(folder, prompt, n, **settings):
    """Greedy generation with the cache, that returns the new tokens."""
    network = loaded(AutoModelForCausalLM, folder, **settings)
    prompt = torch.from_numpy(prompt)

    @torch.inference_mode()
    def generate():
        options = {
            "max_new_tokens": n,
            "min_new_tokens": n,
            "do_sample": False,
            "use_cache": True,
            "pad_token_id": 0,
        }
        return network.generate(prompt, **options)[0, prompt.shape[1] :].numpy()

    return generate


def vectors(folder, ids):
    """The means of the last layer."""
    network = loaded(AutoModel, folder)
    ids = torch.from_numpy(ids)

    @torch.inference_mode()
    def mean():
        return network(ids).last_hidden_state.mean(dim=1).numpy()

    return mean


def loaded(kind, folder, **settings):
    """The network, on every core; settings take the place of those in config.json."""
    torch.set_num_threads(physical_cores())
    return kind.from_pretrained(folder, dtype="float32", **settings).eval()
