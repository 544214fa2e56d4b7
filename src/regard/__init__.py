"""Every attention mechanism: exact, fast, trainable and visible."""

__version__ = "0.1.0"
