"""The kernels, in files that are named after those of the math."""
