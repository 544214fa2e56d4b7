"""Fused loops for a CPU, compiled at run time from Python by Numba; nothing here is imported before it is used."""
