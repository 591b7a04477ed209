"""What calls the kernels of ``gpu/cuda`` and cuBLAS, in files with the names of those of the math."""
