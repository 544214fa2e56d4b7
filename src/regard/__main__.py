"""``python -m regard`` is the command ``regard``; ``torchrun -m regard`` starts it in several processes."""

from regard.cli import main

main()
