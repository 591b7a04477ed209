"""Models of transformers from their folders, in float32 and PyTorch's eager mode."""

import torch
from transformers import AutoModel, AutoModelForCausalLM

from scripts.bench.machine import physical_cores


def generation(folder, prompt, n):
    """Greedy generation with the cache, that returns the new tokens."""
    network, prompt = loaded(AutoModelForCausalLM, folder), torch.from_numpy(prompt)

    @torch.inference_mode()
    def generate():
        options = {"max_new_tokens": n, "min_new_tokens": n, "do_sample": False, "use_cache": True, "pad_token_id": 0}
        return network.generate(prompt, **options)[0, prompt.shape[1] :].numpy()

    return generate


def vectors(folder, ids, _):
    """The means of the last layer."""
    network, ids = loaded(AutoModel, folder), torch.from_numpy(ids)

    @torch.inference_mode()
    def mean():
        return network(ids).last_hidden_state.mean(dim=1).numpy()

    return mean


def loaded(kind, folder):
    """The network, on every core."""
    torch.set_num_threads(physical_cores())
    return kind.from_pretrained(folder, dtype="float32").eval()
