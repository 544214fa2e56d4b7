"""Compiled loops on tensors and numbers, independent of the objects for scores, masks and problems."""
