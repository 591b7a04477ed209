"""The formulas, one idea per file, each backward pass directly below its forward pass."""
