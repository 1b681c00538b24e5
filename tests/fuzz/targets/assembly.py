"""Assembly programs, which must run alike on both engines."""

from __future__ import annotations

from collections.abc import Iterator

from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble, disassemble_bundle
from nmpsim.isa.codec import BY_MNEMONIC, RECORDS

from .. import programs
from ..engines import limit_cycles, make_inputs, run_on_both, warm
from ..mutate import INTEGERS, make_text_mutator
from ..target import Target, allow_errors

PIECES = (
    *map(str, INTEGERS), *BY_MNEMONIC, *RECORDS, *(f".{name}" for name in RECORDS), ".data",
    ".text", ".balign 64", ".word 1", ".half 1", ".byte 1", ".zero 4", ".zero 99999999999",
    ".balign 0", ".balign 1099511627776", ".set x, x", ".set x, 1", ".input a, i8<4>",
    ".output a, i8<4>", ".layer 0, a, conv, b", ".metadata", "_start:", "a:", "1:", "1b", "1f",
    "a0", "x31", "x32", "zero", "sp", "(", ")", "((((", "+", "-", "*", "/ 0", "% 0", "<< 99999999",
    ">>", "~", "%hi(x)", "%lo(x)", "0x", "0b2", "'", '"', "#", "//", "/*", ",", ":", "\0", "\r",
    "li a0, 1", "j .", "nmp.halt", "nmp.barrier", "ecall", "la a0, a", "csrr a0, mcycle",
)  # fmt: skip


def run(data: bytes) -> None:
    """Assemble a text, disassemble the bundle and run it."""
    warm()
    with allow_errors("ASM", "ISA", "COMP002", "BUN", "INPUT", "ARG001"):
        device = limit_cycles(programs.small_device())
        text = data.decode("utf-8", "replace")
        bundle = parse_bundle(assemble(text, "a.s", device.settings()).build_bundle(), "a.bin")
        disassemble_bundle(bundle)
        inputs = make_inputs(bundle.metadata)
        if inputs is not None:
            run_on_both(bundle, device, inputs)


def seeds() -> Iterator[bytes]:
    """Yield the example programs."""
    for path in programs.ASSEMBLY:
        yield path.read_bytes()


TARGET = Target(run, seeds, make_text_mutator(PIECES), seconds=20, most_bytes=1 << 14)
