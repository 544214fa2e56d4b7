"""Axes of tensors: their names, what they mean in a call, the grid of pairs, and the checks of arguments."""
