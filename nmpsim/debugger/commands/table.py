"""Every command in one table: what help shows, what completion offers, what is done."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from nmpsim.debugger.commands.arguments import Arguments
from nmpsim.debugger.commands.context import Context
from nmpsim.debugger.commands.result import Result


@attrs.frozen
class Command:
    """One command."""

    name: str
    usage: str
    """With its arguments; ``[...]`` may be left out."""
    summary: str
    run: Callable[[Context, Arguments], Result]
    aliases: tuple[str, ...] = ()
    completes: tuple[str, ...] = ()
    """What its arguments may be: words as they are, or <layer>, <tensor>, <breakpoint>, <file>."""
    details: str = ""
    group: str = ""
    """Heading in the help; set where the table is put together."""
