"""The operations that have a kernel on the CPU, in files that are named after those of the math.

Each function under ``kernel_of(reference.…)`` is a way to compute that operation: the same
arguments, results of the same shapes and dtypes, and equal up to rounding.
"""
