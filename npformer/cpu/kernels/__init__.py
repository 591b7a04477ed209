"""The kernels, in files with the names of those of the math."""
