"""Scratchpad and DRAM: the address map, the bytes that instructions touch, DRAM rows, every check.

``address_map`` says what lies where, ``dram`` how a transfer goes through rows in grants,
``footprint`` which bytes an instruction reads and writes, ``checks`` what it may not be asked.
Pure functions, most of them of integers, so that both engines use the same ones.
"""
