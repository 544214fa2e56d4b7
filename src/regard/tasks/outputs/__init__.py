"""What tasks predict: a label, a text, a mask, the next token."""
