"""The backend ``sdpa``: PyTorch's own kernels."""
