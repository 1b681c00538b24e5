"""Memory of a program that is being compiled: addresses of activations and constants, symbols."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from nmpsim.arrays import Array
from nmpsim.bundle.debug import PackedConstantLocation
from nmpsim.bundle.elf import Buffer, LazyBytes
from nmpsim.bundle.write import BundleBuilder
from nmpsim.compiler.allocate import allocate_buffers
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import fail
from nmpsim.isa.table import DRAM_BASE
from nmpsim.lir.nodes import Module

SYMBOL_BYTES = 512
"""Maximum length of a symbol's name; longer names are truncated."""


class ProgramMemory:
    """Memory of a program in DRAM: an allocator of its buffers and constants."""

    def __init__(
        self,
        module: Module,
        builder: BundleBuilder,
        weights: Mapping[str, BufferView],
        operations: tuple[Operation, ...],
        config: DeviceConfig,
        chains: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.values = module.constants
        self._builder = builder
        self._symbols: dict[str, int] = {}
        self.constants: dict[str, int] = {}
        """Address of each constant in the image by name."""
        self.packed: dict[str, PackedConstantLocation] = {}
        """Location of each packed constant by name."""
        always = [v.buffer for v in weights.values() if not v.buffer.constant]
        allocation = allocate_buffers(operations, always, chains)
        self._base = builder.reserve("", allocation.nbytes)
        self._offsets = allocation.offsets
        end = self._base + allocation.nbytes - DRAM_BASE
        if end > config.dram_bytes:
            raise fail(
                "COMP002",
                "the program and its activations do not fit the device's DRAM",
                found=f"{end} bytes",
                expected=f"at most {config.dram_bytes} bytes",
                hint="Increase bytes in [dram] of the device file.",
            )

    def get_address(self, view: BufferView) -> int:
        """Return the DRAM address of a view; store a constant at its first use."""
        name = view.buffer.name
        if not view.buffer.constant:
            return self._base + self._offsets[name] + view.byte_offset
        if name not in self.constants:
            values = np.ascontiguousarray(self.values[name])
            self.constants[name] = self.add_constant(name, values)
        return self.constants[name] + view.byte_offset

    def get_values(self, view: BufferView) -> Array:
        """Return the values of a constant in the shape of the view."""
        return view.get_constant_values(self.values)

    def add_constant(self, name: str, data: Array | Buffer | LazyBytes) -> int:
        """Store the data of a constant and return its DRAM address."""
        return self._builder.add_constant(self._make_symbol(name), data)

    def get_next_address(self) -> int:
        """Return the DRAM address at which the next constant will be stored."""
        return self._builder.get_constant_address()

    def record_packed_constant(self, view: BufferView, where: PackedConstantLocation) -> None:
        """Record where a packed constant is stored if the view covers all of it."""
        values = self.values[where.name]
        if view.shape == values.shape and view.type.dtype == values.dtype:
            self.packed.setdefault(where.name, where)

    def add_symbols(self) -> None:
        """Add a bundle symbol for each buffer in read-write memory."""
        for name, offset in self._offsets.items():
            self._builder.define_symbol(self._make_symbol(name), self._base + offset)

    def _make_symbol(self, name: str) -> str:
        """Return a unique symbol name that ELF can hold."""
        name = name.replace("\0", "").encode()[:SYMBOL_BYTES].decode(errors="ignore") or "_"
        taken = self._symbols.get(name, 0)
        self._symbols[name] = taken + 1
        return name if taken == 0 else f"{name}.{taken}"
