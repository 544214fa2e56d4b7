"""Images: how they are read, resized, augmented and batched, and a generator of scenes that knows where everything is.

Nothing is imported here: each module brings the libraries that it needs.
"""
