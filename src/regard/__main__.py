"""Runs the command ``regard``: ``python -m regard``, or ``torchrun -m regard`` for several processes."""

from regard.cli import main

main()
