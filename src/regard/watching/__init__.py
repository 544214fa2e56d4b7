"""Other people's models: regard as an attention implementation of Hugging Face, and statistics of a model's heads."""

from regard.watching.hugging_face import register_transformers

__all__ = ["register_transformers"]
