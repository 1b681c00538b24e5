"""How one result of a tensor instruction came about, from what lies in the scratchpad.

Everything is read back from the machine as it stood when the instruction was issued and worked out
with the reference engine's own functions, so it is what the device did, whoever made the program.
"""

from __future__ import annotations

from collections.abc import Sequence

from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.operands import Words
from nmpsim.core.reference.scratchpad import Scratchpad
from nmpsim.core.state import Machine
from nmpsim.debugger.arithmetic.records import Element, Made, Step, Term
from nmpsim.debugger.arithmetic.sums import conv_terms, dwconv_terms, gemm_terms, product, weighted
from nmpsim.debugger.arithmetic.vector import EXPLAIN

__all__ = ["Element", "Made", "Step", "Term", "made_by", "terms_of_part"]


def made_by(
    machine: Machine, core: int, name: str, words: Words, at: Element, earlier: Sequence[Term] = ()
) -> Made:
    """How an instruction makes one of its results; ``name`` is that of its descriptor.

    ``earlier`` are the terms of the parts of the sum before it.
    """
    spm = Scratchpad(Core(machine, core))
    if name in ("conv", "dwconv"):
        terms = conv_terms(spm, words, at) if name == "conv" else dwconv_terms(spm, words, at)
        return weighted(spm, words, at, terms, earlier)
    if name == "gemm":
        return product(spm, words, at, gemm_terms(spm, words, at), earlier)
    return EXPLAIN[name](spm, words, at)


def terms_of_part(
    machine: Machine, core: int, name: str, words: Words, at: Element
) -> tuple[Term, ...]:
    """What one part of a sum adds."""
    spm = Scratchpad(Core(machine, core))
    return conv_terms(spm, words, at) if name == "conv" else gemm_terms(spm, words, at)
