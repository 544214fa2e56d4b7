"""The task ``sounds``."""
