"""Benchmarks: how fast npformer is, beside other libraries."""
