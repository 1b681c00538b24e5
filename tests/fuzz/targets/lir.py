"""LIR text."""

from __future__ import annotations

from collections.abc import Iterator

from nmpsim.lir.opcodes import OPCODES
from nmpsim.lir.parser import parse
from nmpsim.lir.printer import format_module
from nmpsim.lir.verify import verify

from ..mutate import INTEGERS, make_text_mutator
from ..target import ROOT, Target, allow_errors

PIECES = (
    *map(str, INTEGERS), *OPCODES, "inf", "nan", "1e999", "x", " x ", ", ", ": ", "{", "}", "[",
    "]", "<", ">", "[]", "<>", "<0>", "<1 x 1 x 1 x 1>", "%", "@in", "@out", "@inout", "//", ";",
    "\r", "\0", "\ufeff", "i8", "i16", "i32", "i64", "float", "float16", "bool", "index64", "Ty:",
    "Offsets: [9]", "[S:0.000000000 O:0][0.000,0.000]", "const", "mutable", "Kernels: [1, 1]",
    "Strides: [0, 0]", "Pads: [9, 9, 9, 9]", "Group: 0", "Dilation: [2, 2]", "[ pred: %data ]",
)  # fmt: skip


def run(data: bytes) -> None:
    """Parse and verify a text; assert that a valid module prints as an equal text."""
    with allow_errors("LIR"):
        module = parse(data.decode("utf-8", "replace"))
        printed = format_module(module)
        assert format_module(parse(printed)) == printed
        verify(module)


def seeds() -> Iterator[bytes]:
    """Yield the quantized and the float digits network."""
    for name in ("digits.lir.txt", "float.lir.txt"):
        yield (ROOT / "programs" / "digits" / name).read_bytes()


TARGET = Target(run, seeds, make_text_mutator(PIECES))
