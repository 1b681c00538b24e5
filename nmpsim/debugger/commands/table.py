"""Every command in one table: what help shows, what completion offers, what is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from nmpsim.debugger.commands.arguments import Arguments
from nmpsim.debugger.commands.result import Result

if TYPE_CHECKING:
    from nmpsim.debugger.commands.shell import Shell


@attrs.frozen
class Command:
    """One command."""

    name: str
    usage: str
    """With its arguments; ``[...]`` may be left out."""
    summary: str
    run: Callable[[Shell, Arguments], Result]
    aliases: tuple[str, ...] = ()
    completes: tuple[str, ...] = ()
    """What its arguments may be: words as they are, or <layer>, <tensor>, <breakpoint>, <file>."""
    details: str = ""
    group: str = ""
    """Heading in the help; set where the table is put together."""
