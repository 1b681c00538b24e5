"""The reference engine: plain Python and NumPy, the living definition of every instruction.

Read :mod:`~nmpsim.core.reference.context` first, then :mod:`~nmpsim.core.reference.integer`.
"""
