"""How kernels tell normalizers and biases apart: numbers that compiled and uncompiled code share."""

SOFTMAX, ENTMAX15, SPARSEMAX, ENTMAX, SIGMOID, HARD = range(6)
"""How scores become weights."""

NORMALIZERS = ("softmax", "entmax15", "sparsemax", "entmax", "sigmoid", "hard")
"""Their names, in this order."""

NO_BIAS, DENSE_BIAS, DIAGONAL_BIAS = range(3)
"""What is added to scores: nothing, a tensor over pairs, or a number for each distance."""
