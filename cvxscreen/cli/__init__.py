"""The ``cvxscreen`` command."""

from cvxscreen.cli.commands import main

__all__ = ["main"]
