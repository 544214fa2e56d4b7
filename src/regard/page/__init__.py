"""The local page: type a text, and see a model's answer and its attention."""
