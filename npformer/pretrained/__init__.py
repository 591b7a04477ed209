"""Models of other libraries, from and to their files: GPT-2, Llama, BERT, Marian, PyTorch's ``nn.Transformer``."""

from npformer.pretrained.loading import load, save

__all__ = ["load", "save"]
