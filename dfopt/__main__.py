"""``python -m dfopt``."""

from dfopt.cli import run

run()
