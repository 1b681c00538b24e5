"""``--max-memory SIZE``: what a command may allocate."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

_SIZE = re.compile(r"(\d{1,15})(?:\.(\d{1,6}))?\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class _Size(click.ParamType):  # type: ignore[type-arg] # only newer versions of click have it generic
    """A number of bytes: ``800M``, ``2GB`` (thousands) or ``1.5GiB`` (of 1,024)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no size such as 800M, 2GB or 1.5GiB.", param, ctx)
        whole, fraction, unit, binary = match.groups()
        scale = (1024 if binary else 1000) ** _POWERS[unit.lower()]
        nbytes: int = int(whole + (fraction or "")) * scale // 10 ** len(fraction or "")
        if nbytes < 1:
            self.fail(f"{value!r} is no memory at all.", param, ctx)
        return nbytes


def max_memory_option(command: _Command) -> _Command:
    """``--max-memory SIZE``"""
    return click.option(
        "--max-memory",
        metavar="SIZE",
        type=_Size(),
        help="Refuse what would allocate more than this, such as 800M or 2GiB, before it begins."
        "  [default: what is free, less a margin]",
    )(command)
