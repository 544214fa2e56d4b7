"""Fused attention for GPUs, compiled at run time from Python by Triton. Only what runs a call imports these files."""
