"""Scratchpad and DRAM: address map, memory accesses of instructions, DRAM rows, checks.

``address_map`` defines the regions of memory, ``dram`` divides transfers into grants,
``footprint`` computes the bytes that an instruction accesses, ``checks`` validates descriptors.
All are pure functions, shared by both engines.
"""
