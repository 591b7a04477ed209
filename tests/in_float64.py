"""The library transformers in float64.

It computes some steps in float32, whatever the dtype of the parameters.
"""


def compute_in_float64(monkeypatch, torch):
    """Take float64 for float32 until the test ends."""
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch, "float", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
