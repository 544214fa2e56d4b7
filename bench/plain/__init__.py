"""Models of this package in plain PyTorch, as users write them without it, to compare the speed of training."""
