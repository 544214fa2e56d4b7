"""Telling the class of each pixel of images."""
