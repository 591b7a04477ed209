"""What calls the kernels of ``gpu/cuda`` and cuBLAS, in files that are named after those of the
math.
"""
