"""The bodies of kernels, in the subset of Python that Numba compiles; only this room imports Numba."""
