"""Commands that hold the program against its LIR and against files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from nmpsim.debugger.audit import StageAudit, audit_constants, audit_integers
from nmpsim.debugger.commands.arguments import Arguments
from nmpsim.debugger.commands.result import Result, count, table
from nmpsim.debugger.commands.table import Command
from nmpsim.debugger.inspect import find_layer

if TYPE_CHECKING:
    from nmpsim.debugger.commands.shell import Shell


def integers(shell: Shell, arguments: Arguments) -> Result:
    """Rescale integers beside what the scales ask for."""
    debugger = shell.debugger
    if arguments:
        chosen = [find_layer(debugger, arguments.word("a layer"))]
    else:
        chosen = [layer for layer in debugger.layers if layer.placement == "device"]
    arguments.end()
    found = [
        one
        for layer in chosen
        for one in audit_integers(shell.module(), layer, shell.changes.trace(layer))
    ]
    rows = [_row(one) for one in found]
    names = ("layer", "stage", "factor", "expected", "found", "", "formula")
    wrong = sum(not one.is_right for one in found)
    lines = table(names, rows) if rows else ()
    summary = f"{count(wrong, 'rescaling')} of {len(found)} differ from what the scales ask for"
    data = {"stages": [attrs.asdict(one) for one in found], "wrong": wrong}
    return Result((*lines, summary), data)


def _row(one: StageAudit) -> list[object]:
    said = " and ".join(_written(integers) for integers in one.found)
    mark = "" if one.is_right else "WRONG"
    return [one.layer, one.stage, f"{one.real:.6g}", _written(one.expected), said, mark,
            one.formula]  # fmt: skip


def _written(integers: tuple[int, int, int]) -> str:
    pre, mul, post = integers
    return f"(x >> {pre}) * {mul} >> {post}"


def constants(shell: Shell, arguments: Arguments) -> Result:
    """The program's constants beside a file's."""
    path = Path(arguments.word("a file"))
    arguments.end()
    arrays = shell.open_arrays(path)
    found = list(audit_constants(shell.module(), arrays.keys, arrays.read))
    rows: list[list[object]] = []
    for one in found:
        first = ""
        if one.differing:
            first = f"{list(one.first)}: {one.ours:g} instead of {one.theirs:g}"
        result = one.problem or ("DIFFERS" if one.differing else "equal")
        rows.append(
            [one.name, one.elem, "x".join(map(str, one.shape)), result, one.differing, first]
        )
    lines = table(("constant", "elem", "shape", "result", "differ", "first"), rows) if rows else ()
    wrong = sum(bool(one.differing or one.problem) for one in found)
    summary = f"{count(wrong, 'constant')} of {len(found)} differ"
    data = {"constants": [attrs.asdict(one) for one in found], "differing": wrong}
    return Result((*lines, summary), data)


COMMANDS = (
    Command(
        "integers",
        "integers [LAYER]",
        "rescale integers beside what the LIR's scales ask for",
        integers,
        (),
        ("<layer>",),
        "Layers that follow glow-int and have one scale for all channels.",
    ),
    Command(
        "constants",
        "constants FILE.npz",
        "the program's weights and biases beside a file's",
        constants,
        (),
        ("<file>",),
    ),
)
