"""Layout of a bundle in the file and in DRAM.

The read-only part has the same layout in both, from the ELF header on: address = ``DRAM_BASE`` +
file offset. So one read loads it. Read-write memory (activations) has its own window at a fixed
address, so that no address depends on the size of later parts.
"""

from __future__ import annotations

from nmpsim.bundle.elf import align_up, count_header_bytes
from nmpsim.isa.table import DRAM_BASE

RW_BASE = DRAM_BASE + 0x2000_0000
"""First address of the read-write memory."""
READ_ONLY_LIMIT = RW_BASE - DRAM_BASE
"""Most bytes (512 MiB) of headers, constants, descriptors and code together."""
RW_LIMIT = (1 << 32) - RW_BASE
"""Most bytes of read-write memory."""
TENSOR_ALIGNMENT = 64
"""Alignment of tensors in bytes: a cache line of the host and a burst of the device's DRAM."""
PART_ALIGNMENT = 64
"""Alignment of constants, descriptors and code in bytes."""
SEGMENTS = 3
"""Number of program headers: constants and descriptors, code, read-write memory."""
CONSTANTS_OFFSET = align_up(count_header_bytes(SEGMENTS), PART_ALIGNMENT)
"""File offset of the first constant."""
PAGE_BYTES = 4096

KERNEL_BASE = DRAM_BASE + PAGE_BYTES
"""Address for which kernels in C are linked; their data is at ``RW_BASE``."""

KERNEL_TEXT = ".kernel.text"
KERNEL_DATA = ".kernel.data"
CONSTANTS = ".constants"
DESCRIPTORS = ".descriptors"
TEXT = ".text"
ACTIVATIONS = ".activations"
SECTION_PREFIX = ".nmpsim."
"""Start of the names of the sections that only bundles have."""
META = ".nmpsim.meta"
DIGEST = ".nmpsim.digest"
LIR_TEXT = ".nmpsim.lir"
LIR_INDEX = ".nmpsim.lir.index"
LIR_CONSTANTS = ".nmpsim.lir.constants"
"""Section of the constants of the LIR module from which the bundle was made."""
DEBUG_SECTIONS = (LIR_TEXT, LIR_INDEX, LIR_CONSTANTS)
DWARF_PREFIX = ".debug_"
"""Start of the names of DWARF sections."""
