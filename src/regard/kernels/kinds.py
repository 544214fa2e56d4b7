"""Integer codes of normalizers and biases, shared by compiled and uncompiled code."""

SOFTMAX, ENTMAX15, SPARSEMAX, ENTMAX, SIGMOID, HARD = range(6)
"""Codes of the normalizers."""

NORMALIZERS = ("softmax", "entmax15", "sparsemax", "entmax", "sigmoid", "hard")
"""Names of the normalizers, in the order of their codes."""

NO_BIAS, DENSE_BIAS, DIAGONAL_BIAS = range(3)
"""Codes of the biases: none, a tensor over pairs, or one value for each distance between query and key."""
