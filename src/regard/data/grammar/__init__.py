"""The grammar of the generated corpus: English sentences and what they are in Spanish, word for word."""
