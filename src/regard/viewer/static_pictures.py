"""Views as matplotlib figures: what a file or a report gets without a browser."""

from __future__ import annotations
