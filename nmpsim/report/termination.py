"""Termination of a run: traps, and violations of the contract of the instruction set."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Literal

from nmpsim.escape import escape_line
from nmpsim.records import frozen
from nmpsim.report.fields import OMITTED_IF_NONE, Count, Whole

_FunctionName = Annotated[
    str | None,
    "[function](lines.md) or label of the instruction; missing if unknown",
    OMITTED_IF_NONE,
]
_FileName = Annotated[
    str | None, "source file of the instruction; missing if unknown", OMITTED_IF_NONE
]
_FileLine = Annotated[Whole | None, "line in this file; missing if unknown", OMITTED_IF_NONE]


@frozen
class TrapReport:
    """Report of why and where a run stopped before its end."""

    kind: Annotated[
        Literal["trap", "deadlock", "cycle_limit", "timeout", "contract"],
        "`trap`; `deadlock` (all cores wait, and nothing can release them); `cycle_limit` (beyond"
        " `limits_cycles`, or `--max-cycles`); `timeout` (longer than `--timeout`); `contract` (it"
        " violates the contract, see below)",
    ]
    message: Annotated[str, "description"]
    core: Annotated[Whole | None, "number of the core; null if no single core caused it"]
    pc: Annotated[Whole | None, "address of its instruction"]
    cause: Annotated[Whole | None, "`mcause`, for a `trap`; [isa.md](isa.md) lists them"]
    value: Annotated[
        Whole | None,
        "`mtval`: the address or word at fault, for a `trap`; the first address, for a `contract`",
    ]
    instruction: Annotated[
        str | None, "the instruction as assembly text; null if it cannot be read"
    ]
    layer: Annotated[str | None, "name of the layer that the core worked on; null if unknown"]
    line: Annotated[Whole | None, "line of that layer in the LIR text"]
    function: _FunctionName = None
    file: _FileName = None
    file_line: _FileLine = None

    def describe_source(self) -> str:
        """Describe the source of the instruction, such as ``fir (fir.c:7)``; "" if unknown."""
        place = f"{PurePath(self.file).name}:{self.file_line}" if self.file is not None else ""
        if not self.function:
            return escape_line(place)
        return escape_line(f"{self.function} ({place})" if place else self.function)


@frozen
class ConsoleLine:
    """Line of text that a core stored to its console."""

    core: Annotated[Count, "number of the core"]
    cycle: Annotated[Count, "cycle of the first character"]
    text: Annotated[str, "characters, with the newline at the end; others than UTF-8 as `\\xff`"]


@frozen
class ViolationReport:
    """Report of one contract violation: the case, the instruction and the bytes."""

    code: Annotated[str, "code of the [error](errors.md), by category"]
    category: Annotated[str, "undefined, unpredictable value used, missing synchronization"]
    case: Annotated[str, "which case, as `unit_order`"]
    message: Annotated[str, "description"]
    hint: Annotated[str, "how to fix it"]
    core: Annotated[Whole | None, "number of the core; null if it is the host"]
    pc: Annotated[Whole | None, "address of the instruction"]
    instruction: Annotated[str | None, "as assembly text"]
    layer: Annotated[
        str | None,
        "layer of the instruction; if it has none, layer of the earlier instruction",
    ]
    line: Annotated[Whole | None, "line of that layer in the LIR text"]
    operand: Annotated[
        str,
        "which operand: `input`, `weights`, `output`, `spm`, `dram`, `word` of a scalar access,"
        " `descriptor`, `code`, `tensor` of the host",
    ]
    first_address: Annotated[Count, "address of the first byte of the violation"]
    last_address: Annotated[
        Count, "address of the last byte; some bytes between may not be part of the violation"
    ]
    tensor: Annotated[str | None, "tensor at that address in DRAM; null if unknown"]
    other_core: Annotated[Whole | None, "core of the earlier instruction, if there are two"] = None
    other_pc: Annotated[Whole | None, "address of the earlier instruction"] = None
    other_instruction: Annotated[str | None, "earlier instruction as assembly text"] = None
    other_layer: Annotated[str | None, "layer of the earlier instruction"] = None
    function: _FunctionName = None
    file: _FileName = None
    file_line: _FileLine = None


@frozen
class ContractReport:
    """Report of whether a run obeyed the contract of the instruction set."""

    status: Annotated[
        Literal["proved", "checked", "violated", "not_checked"],
        "`proved`: obeyed for every input; `checked`: obeyed in this run, whose instructions"
        " depend on data; `violated`; `not_checked`: with `--no-strict`, or if it could not be",
    ]
    message: Annotated[str, "why it was not checked, or what could not be; empty otherwise"] = ""
    violation: Annotated[ViolationReport | None, "null, or the first [violation](#violation)"] = (
        None
    )


NOT_CHECKED = ContractReport("not_checked")
