"""Calculations that are compiled, transformed or exported, and tensors that a backward pass reads again."""
