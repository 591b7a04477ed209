"""Models that others have trained: GPT-2, Llama, BERT, Marian, PyTorch's ``nn.Transformer``, from and to their files."""

from npformer.pretrained.loading import load, save

__all__ = ["load", "save"]
