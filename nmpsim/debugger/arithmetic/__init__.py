"""How one result of a tensor instruction came about, from what lies in the scratchpad.

Everything is read back from the machine as it stood when the instruction was issued and worked out
with the reference engine's own functions, so it is what the device did, for any program.
"""

from __future__ import annotations

from collections.abc import Sequence

from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.operands import Scratchpad, Words
from nmpsim.core.state import Machine
from nmpsim.debugger.arithmetic.records import Element, Made, Term, WhyStep
from nmpsim.debugger.arithmetic.sums import conv_terms, dwconv_terms, gemm_terms, product, weighted
from nmpsim.debugger.arithmetic.vector import EXPLAIN
from nmpsim.isa.exhaustive import check_exhaustive
from nmpsim.isa.table import INSTRUCTIONS, Unit

__all__ = ["Element", "Made", "WhyStep", "Term", "made_by", "terms_of_part"]

SUMS = {
    "conv": (conv_terms, weighted),
    "dwconv": (dwconv_terms, weighted),
    "gemm": (gemm_terms, product),
}
"""Descriptor -> the products of a sum, and how a result is made of them."""
check_exhaustive(
    f"{__name__}.SUMS and EXPLAIN",
    (*SUMS, *EXPLAIN),
    (i.descriptor for i in INSTRUCTIONS if i.unit in (Unit.MAC, Unit.VECTOR)),
)


def made_by(
    machine: Machine, core: int, name: str, words: Words, at: Element, earlier: Sequence[Term] = ()
) -> Made:
    """How an instruction makes one of its results; ``name`` is that of its descriptor.

    ``earlier`` are the terms of the parts of the sum before it.
    """
    spm = Scratchpad(Core(machine, core))
    if name not in SUMS:
        return EXPLAIN[name](spm, words, at)
    terms_of, finish = SUMS[name]
    return finish(spm, words, at, terms_of(spm, words, at), earlier)


def terms_of_part(
    machine: Machine, core: int, name: str, words: Words, at: Element
) -> tuple[Term, ...]:
    """What one part of a sum adds."""
    spm = Scratchpad(Core(machine, core))
    terms_of, _ = SUMS[name]
    return terms_of(spm, words, at)
