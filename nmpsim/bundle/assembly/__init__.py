"""Whole programs as text: :func:`assemble` makes a bundle's contents, and back.

One instruction as text is :mod:`nmpsim.isa.assembly`'s.
"""

from nmpsim.bundle.assembly.assembler import AssembledProgram, assemble
from nmpsim.bundle.assembly.disassembler import disassemble_bundle

__all__ = ["AssembledProgram", "assemble", "disassemble_bundle"]
