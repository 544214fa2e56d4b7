"""Kernels for a CPU, compiled at run time from Python by Numba."""
