"""Parallel text: where it comes from, how it becomes numbers, and in which order it is seen.

Nothing is imported here: each module brings the libraries that it needs.
"""
