"""Where the parts of a bundle lie in the file and in DRAM.

What is read-only lies in DRAM as it lies in the file: address = ``DRAM_BASE`` + file offset, from
the ELF header on, so one read is the whole of it. What is read and written (activations) has its
own window at a fixed address, so no address depends on the size of what comes later.
"""

from __future__ import annotations

from nmpsim.bundle.elf import align_up, headers_bytes
from nmpsim.isa.table import DRAM_BASE

RW_BASE = DRAM_BASE + 0x2000_0000
"""First address of the read-write memory."""
READ_ONLY_LIMIT = RW_BASE - DRAM_BASE
"""Bytes (512 MiB) that headers, constants, descriptors and code may take together."""
RW_LIMIT = (1 << 32) - RW_BASE
"""Bytes that the read-write memory may take."""
TENSOR_ALIGNMENT = 64
"""Bytes; where tensors begin: a cache line of the host and a burst of the device's DRAM."""
PART_ALIGNMENT = 64
"""Bytes; where constants, descriptors and code each begin."""
SEGMENTS = 3
"""Program headers: constants and descriptors, code, read-write memory."""
CONSTANTS_OFFSET = align_up(headers_bytes(SEGMENTS), PART_ALIGNMENT)
"""File offset of the first constant."""
PAGE_BYTES = 4096

CONSTANTS = ".constants"
DESCRIPTORS = ".descriptors"
TEXT = ".text"
ACTIVATIONS = ".activations"
META = ".nmpsim.meta"
DIGEST = ".nmpsim.digest"
LIR_TEXT = ".nmpsim.lir"
LIR_INDEX = ".nmpsim.lir.index"
LIR_CONSTANTS = ".nmpsim.lir.constants"
"""Debug information: the LIR module that the bundle was made from."""
DEBUG_SECTIONS = (LIR_TEXT, LIR_INDEX, LIR_CONSTANTS)
