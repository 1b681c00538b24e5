"""The instruction set: one table of instructions and descriptors, and everything derived from it.

Read :mod:`nmpsim.isa.table` first; :mod:`~nmpsim.isa.codec`, :mod:`~nmpsim.isa.assembly` and the
page docs/isa.md are derived from it.
"""
