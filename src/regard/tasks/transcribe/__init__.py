"""The task ``transcribe``."""
