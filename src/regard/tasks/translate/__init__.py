"""Translating text: a recurrent encoder-decoder, with or without attention, trained on pairs of sentences."""
