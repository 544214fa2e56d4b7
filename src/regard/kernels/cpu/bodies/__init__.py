"""What kernels are made of, in the part of Python that Numba compiles; only this room imports Numba."""
