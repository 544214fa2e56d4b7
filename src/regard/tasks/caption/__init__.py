"""Saying in words what an image shows."""
