"""The copies of DMA instructions, and the check of their DRAM addresses."""

from __future__ import annotations

from typing import Any

from nmpsim.core.compiled.kernel_context import (
    KernelContext,
    compute_scratchpad_offset,
    make_descriptor_reader,
)
from nmpsim.core.compiled.memory import IMAGE, RAM, locate
from nmpsim.core.compiled.units import count_padding_bytes
from nmpsim.core.state import Machine
from nmpsim.isa.words import INT16, LOAD, STORE
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import copy_strided, fill_rows
from nmpsim.kernels.operands import CopyShape
from nmpsim.memory.bounds import count_spanned_bytes


def make_copy_shape_reader(descriptor: str, source: str, target: str) -> Any:
    """Return a compiled function that reads the copy shape of a transfer from its descriptor."""
    strides = {
        f"{side}_stride_{axis}": f"{{{memory}_stride_{axis}}}"
        for side, memory in (("from", source), ("to", target))
        for axis in "xy"
    }
    return make_descriptor_reader(CopyShape, descriptor, run="{run_bytes}", **strides)


read_load_box = make_copy_shape_reader("load", "dram", "spm")
read_store_box = make_copy_shape_reader("store", "spm", "dram")


@jit
def compute_dram_extent(d: Int64s) -> Any:
    """Compute the number of bytes from the first to the last DRAM byte of a transfer."""
    rows, runs, run = d[LOAD.count_y], d[LOAD.count_x], d[LOAD.run_bytes]
    return count_spanned_bytes(rows, d[LOAD.dram_stride_y], runs, d[LOAD.dram_stride_x], run)


@jit
def fill_padding(w: KernelContext, d: Int64s) -> None:
    """Fill the padding of a load, and possibly bytes that the load's copy overwrites later."""
    run, start = d[LOAD.run_bytes], compute_scratchpad_offset(d[LOAD.spm])
    step_x, step_y = d[LOAD.spm_stride_x], d[LOAD.spm_stride_y]
    wide = d[LOAD.pad_x_before] + d[LOAD.count_x] + d[LOAD.pad_x_after]
    high = d[LOAD.pad_y_before] + d[LOAD.count_y] + d[LOAD.pad_y_after]
    if d[LOAD.element] == INT16:
        start, step_x, step_y, run = start >> 1, step_x >> 1, step_y >> 1, run >> 1
        fill_rows(w.spm.i16, start, high, step_y, wide, step_x, run, d[LOAD.fill])
    else:
        fill_rows(w.spm.i8, start, high, step_y, wide, step_x, run, d[LOAD.fill])


@jit
def do_load(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.load``: fill the padding and copy the data from DRAM to a scratchpad."""
    if count_padding_bytes(d) > 0:
        fill_padding(w, d)
    if compute_dram_extent(d) == 0:
        return
    box = read_load_box(w, d)
    to = (
        compute_scratchpad_offset(d[LOAD.spm])
        + d[LOAD.pad_y_before] * box.to_stride_y
        + d[LOAD.pad_x_before] * box.to_stride_x
    )
    offset = d[LOAD.dram] - w.image_base
    if 0 <= offset < w.image.size:
        copy_strided(w.image, offset, w.scratchpad, to, box)
    else:
        copy_strided(w.ram, d[LOAD.dram] - w.ram_base, w.scratchpad, to, box)


@jit
def do_store(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.store``: copy data from a scratchpad to DRAM."""
    if compute_dram_extent(d) == 0:
        return
    start, to = compute_scratchpad_offset(d[STORE.spm]), d[STORE.dram] - w.ram_base
    copy_strided(w.scratchpad, start, w.ram, to, read_store_box(w, d))


KERNELS = {"nmp.load": do_load, "nmp.store": do_store}
"""Mnemonic -> kernel, a function of a kernel context, a descriptor and a layer."""


@jit
def find_invalid_dram_range(m: Machine, d: Int64s, is_load: bool) -> Any:
    """Return the index of a transfer's DRAM address word if its DRAM range is invalid, else -1.

    The first words of a load and a store are the same; a store must not access the image.
    """
    nbytes = compute_dram_extent(d)
    region, _ = locate(m, d[LOAD.dram], nbytes)
    if nbytes == 0 or region == RAM or (is_load and region == IMAGE):
        return -1
    return LOAD.dram
