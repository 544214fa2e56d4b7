"""The backend ``triton``: fused kernels for GPUs."""
