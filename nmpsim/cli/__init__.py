"""The command ``nmpsim``: arguments in, session, view, exit code out.

Nothing heavy is imported until a command needs it, so ``nmpsim --help`` answers at once.
"""

from nmpsim.cli.app import app, main

__all__ = ["app", "main"]
