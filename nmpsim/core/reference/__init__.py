"""The reference engine, which defines every instruction in plain Python and NumPy.

Read :mod:`~nmpsim.core.reference.context` first, then :mod:`~nmpsim.core.reference.integer`.
"""
