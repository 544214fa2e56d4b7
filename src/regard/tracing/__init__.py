"""What a calculation may do with its tensors: compiled, transformed, exported, and read again by a backward pass."""
