"""Compiled loops: tensors and numbers in, tensors out; they know nothing of scores, masks or problems."""
