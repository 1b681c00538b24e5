"""Results of commands: JSON data and text, mostly from the Jinja templates of ``results.toml``.

Stops and locations are formatted without templates, so that short scripts do not import Jinja.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from nmpsim.debugger.audit import format_factor
from nmpsim.debugger.inspect import format_type
from nmpsim.debugger.position import RunLocation, StopResult
from nmpsim.diagnostics import format_count
from nmpsim.escape import escape_line


@attrs.frozen
class CommandResult:
    """Result of a debugger command, as text and as JSON data."""

    lines: tuple[str, ...] = ()
    data: Mapping[str, Any] = attrs.field(factory=dict)
    """JSON-serializable values only."""
    is_worse: bool = False
    """Whether a run trapped or an expectation failed."""
    ends: bool = False
    """Whether the session ends."""

    @property
    def text(self) -> str:
        """Lines of the result as one string; each line ends with a newline."""
        return "".join(f"{line}\n" for line in self.lines)


def to_json_data(value: Any) -> Any:
    """Convert a value to JSON data: records to objects, and infinity and NaN to strings."""
    if attrs.has(type(value)):
        names = [field.name for field in attrs.fields(type(value)) if field.repr]
        return {name: to_json_data(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: to_json_data(one) for key, one in value.items()}
    if isinstance(value, Collection) and not isinstance(value, str):
        return [to_json_data(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def format_stop(stopped: StopResult, was_over: bool) -> Iterator[str]:
    """Format a stop as lines of text: breakpoints that were hit, reason, location."""
    for hit in stopped.hits:
        yield f"breakpoint {hit.breakpoint}: {hit.text}"
    if stopped.message:
        yield ("trap: " if stopped.reason == "trap" else "") + stopped.message
    at = stopped.location
    if stopped.reason == "end":
        yield f"the end: cycle {at.cycle}, {at.layers} layers done"
    else:
        reason = {"interrupted": "interrupted: ", "begin": "the start: "}.get(stopped.reason, "")
        yield reason + format_location(at)
        yield format_next_instruction(at)
    if was_over:
        yield "  the run has ended: use `restart`, `reverse` or `back`"


def format_location(at: RunLocation) -> str:
    """Format the layer, cycle and position of a run as a line of text."""
    layer = (
        "all layers are done" if at.layer is None else f"layer {at.layer} {at.layer_display_name}"
    )
    source = f" ({at.placement}, line {at.line})" if at.line else ""
    return f"{layer}{source}, cycle {at.cycle}, position {at.position}"


def format_next_instruction(at: RunLocation) -> str:
    """Format the next instruction of a run as a line of text, or return "" if there is none."""
    if at.core is None:
        return ""
    source = "".join(f"  {escape_line(one)}" for one in (at.source, at.source_text) if one)
    return f"  core {at.core}  {at.pc:#010x}  {at.instruction}{source}"


class ResultFormatter:
    """Formatter of command results as text by the templates of ``results.toml``.

    ``get_display_name`` returns the display name of a layer, tensor or constant.
    """

    def __init__(self, get_display_name: Callable[[str], str]) -> None:
        from jinja2 import DictLoader, Environment, StrictUndefined

        templates = Path(__file__).with_name("results.toml").read_text(encoding="utf-8")
        self._environment = Environment(
            loader=DictLoader(tomllib.loads(templates)),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        self._environment.filters |= {
            "count": format_count,
            "display_name": get_display_name,
            "factor": format_factor,
            "type": format_type,
        }
        self._environment.globals["table"] = self._format_table
        self._compile = cache(self._environment.compile_expression)

    def format(self, template: str, values: Mapping[str, Any]) -> str:
        """Format the values of a result with a template."""
        text: str = self._environment.get_template(template).render(values)
        return text

    def _format_table(
        self, records: Sequence[Any], columns: Mapping[str, str] | Sequence[str], empty: str = ""
    ) -> str:
        """Format records as a text table, with the column titles if ``columns`` has titles.

        Numbers are aligned to the right. ``empty`` is the text if there are no records; by default
        the titles are shown.
        """
        if empty and not records:
            return empty
        texts = []
        for title in columns:
            expression = columns[title] if isinstance(columns, Mapping) else None
            found = [self._compile(expression or title)(row=record) for record in records]
            values = ["" if value is None else value for value in found]
            cells = [title] * (expression is not None) + list(map(str, values))
            is_number = values and all(isinstance(v, int | float) or v == "" for v in values)
            width = max(map(len, cells), default=0)
            texts.append([f"{cell:{'>' if is_number else '<'}{width}}" for cell in cells])
        return "\n".join("  ".join(row).rstrip() for row in zip(*texts, strict=True))
