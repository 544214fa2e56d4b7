"""Telling the labels of texts."""

from regard.tasks.classify.from_lists import train_classifier

__all__ = ["train_classifier"]
