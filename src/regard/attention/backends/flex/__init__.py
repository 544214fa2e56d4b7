"""The backend ``flex``: PyTorch's FlexAttention."""
