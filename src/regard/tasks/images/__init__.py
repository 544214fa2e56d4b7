"""Telling the labels of images."""
