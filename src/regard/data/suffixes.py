"""The suffixes of the files of images and of sounds that are read, in lower case."""

IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm")

SOUNDS = (".wav", ".flac", ".ogg", ".mp3", ".aiff", ".aif", ".au", ".w64", ".caf")

FEATURES = ".npy"
"""Features of a sound that are computed already."""
