"""``python -m ignite_scheduler.cli``: the same as the command ``ignite``."""

from ignite_scheduler.cli import main

main()
