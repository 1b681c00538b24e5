"""Generator of docs/operations.md: ``python -m nmpsim.compiler.operations_page``.

Everything except the notes is derived from the tables of opcodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nmpsim.compiler.placement import KINDS_ON_THE_DEVICE
from nmpsim.lir.opcode import Opcode
from nmpsim.lir.opcodes import NO_WORK, OPCODES
from nmpsim.lir.refused_opcodes import REFUSED

_INTRODUCTION = f"""\
# Operations

Every instruction of Glow's low-level IR, as `tools/ClassGen/InstrGen.cpp` of pytorch/glow and its
CPU and OpenCL backends list them: {len(OPCODES)} are executed, {len(REFUSED)} are refused by name.
Made from the tables by `python -m nmpsim.compiler.operations_page > docs/operations.md`; edit
there.

## Executed

*On* names the unit of the device that executes the operation, or the host. If a unit does not
support the types or shapes of a layer, the layer runs on the host, and the report gives the reason.
*Kinds* are the element types of the first operand that the host reads. Quantized kinds are
`int8` and `int16`, for which profiles may differ
([numerics.md](numerics.md)); `int32` and `int64` are index integers, except in a bias or a slice.
"""

_NOTES = """\
## What the host does exactly

Operations that no unit of the device does follow Glow's Interpreter
(`lib/Backends/Interpreter/InterpreterNodes.cpp`), under any of Glow's profiles and under `nmp`; the
other profiles have only operations that move or compare values. Float32 is rounded at every step,
and sums run in order. In particular:

- **One formula**, such as `elementsqrt`: `nmpsim/lir/host_opcodes.toml` lists them. On quantized
  values it is `quantize(f(dequantize(q)))`, both in float32. Exponentials are glibc's `expf`; other
  functions of the C library are worked out in float64 and rounded once.
- **topk**: among equals the lower index comes first; NaN, on which Glow's sort is undefined, comes
  last. **argmax**, **argmin**: the first of equals; NaN never wins, and neither does a value that
  is not above the lowest finite one (not below the highest): where none wins, the index is 0.
- **gather**, **gathernd**, **scatterdata**: an index out of range is an error (HOST001);
  **gatherelements** counts negative ones from the end.
- **batchedreducemin**, **batchedreducemax** start at infinity as libjit does, and pass over NaN.
  The Interpreter starts at the limits of 32-bit integers, which shows in values beyond them.
- **Index integers** are calculated in integers, as libjit does. The Interpreter takes comparisons,
  `elementneg`, `elementbitwisenot` and `elementfmod` of them through float32, which is the same up
  to 2^24.
- **resizebilinear** of quantized values interpolates the integers in float32 and truncates the
  result towards zero; **convertto** of a real beyond the integers, undefined in C++, saturates, and
  NaN becomes 0.
- **elementdiv** of quantized values is the Interpreter's, under `glow-int` too; x / 0 saturates,
  and 0 / 0 is real zero.
- **batchnormalization** is that of inference: Momentum is not used. **avgpool** with Layout 2
  (NTHWC) has windows in three dimensions.
- **nonmaxsuppression**: of equal scores the lower index comes first, which Glow leaves to its C++
  library.

`nmpsim quantize` leaves operations that the device has no unit for in float, between `dequantize`
and `quantize`, and says so; it refuses `scatterdata`, which changes a tensor in place (QUANT001).

## Refused

An instruction that is known and not executed is error LIR012, with what could be done instead.
"""

_HEADER = ("opcode", "what it does", "operands", "attributes", "on", "kinds")


def format_operations_page() -> str:
    """Return the text of docs/operations.md."""
    executed = _table(_HEADER, (_row(OPCODES[name]) for name in sorted(OPCODES)))
    refused = _table(("opcodes", "reason", "what could be done"), _refused())
    return f"{_INTRODUCTION}\n{executed}\n{_NOTES}\n{refused}"


def _row(opcode: Opcode) -> tuple[str, ...]:
    operands = ", ".join(f"{role.kind} {role.name}" for role in opcode.operands)
    attributes = (f"{a.name}{'' if a.required else '?'}" for a in opcode.attributes)
    is_executed = opcode.name not in NO_WORK
    on = "device" if opcode.kind in KINDS_ON_THE_DEVICE else "host" if is_executed else "-"
    return (
        f"`{opcode.name}`",
        opcode.summary,
        operands or "-",
        ", ".join(attributes) or "-",
        on,
        _kinds(opcode) if is_executed else "-",
    )


def _kinds(opcode: Opcode) -> str:
    """Return the element types of the first operand that is read, else of the one written."""
    kinds = [role.kind for role in opcode.operands]
    first = next((i for i, kind in enumerate(kinds) if kind != "@out"), 0)
    return " ".join(sorted({name for one in opcode.signatures for name in one.operands[first]}))


def _refused() -> Iterator[tuple[str, ...]]:
    for refusal in dict.fromkeys(REFUSED.values()):
        names = sorted(name for name, other in REFUSED.items() if other == refusal)
        yield ", ".join(f"`{name}`" for name in names), refusal.reason, refusal.hint


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


if __name__ == "__main__":
    print(format_operations_page(), end="")
