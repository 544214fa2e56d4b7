"""The grammar of the generated corpus: English sentences and their Spanish translations, word by word."""
