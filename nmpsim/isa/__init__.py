"""What an instruction is: one table of instructions and descriptors, and what derives from it.

Read :mod:`nmpsim.isa.table` first; :mod:`~nmpsim.isa.codec`, :mod:`~nmpsim.isa.assembly` and
:mod:`~nmpsim.isa.document` only derive.
"""
