"""Sounds: reading, features, tables of utterances, batches, and the generated corpus that knows its alignment.

Nothing is imported here: each module brings the libraries that it needs.
"""
