"""Creation of the machine for a bundle."""

from __future__ import annotations

import attrs
import numpy as np

from nmpsim.bundle.read import Bundle
from nmpsim.config import DeviceConfig, default_device
from nmpsim.core.counters import count_channels
from nmpsim.core.memory_demand import check_run_memory
from nmpsim.core.state import Machine, make_machine, reset
from nmpsim.diagnostics import Place, fail
from nmpsim.isa.table import DRAM_BASE


def load_machine(
    bundle: Bundle,
    config: DeviceConfig,
    max_memory: int | None = None,
    *,
    threads: int = 1,
    save_layers: bool = False,
) -> Machine:
    """Load a bundle into a new machine in its initial state; return the machine.

    Raises
    ------
    UserError
        BUN004 if the bundle was compiled for another device; MEM001 or BUN001 as
        :func:`~nmpsim.core.memory_demand.check_run_memory`, which takes the other arguments.
    """
    _check_fits(bundle, config)
    check_run_memory(bundle, config, max_memory, threads=threads, save_layers=save_layers)
    return make_bundle_machine(bundle, config)


def make_bundle_machine(bundle: Bundle, config: DeviceConfig) -> Machine:
    """Make a machine for a bundle in its initial state; memory is allocated as it is written."""
    layers = bundle.metadata.layers
    last = max((layer.barrier for layer in layers if layer.barrier is not None), default=-1)
    barriers = [len(layers)] * (last + 1)
    for layer in layers:
        if layer.barrier is not None:
            barriers[layer.barrier] = layer.index
    machine = make_machine(
        config,
        bundle.image,
        bundle.image_base,
        bundle.rw_base,
        bundle.rw_bytes,
        [count_channels(layer) for layer in layers],
        barriers,
        bundle.metadata.formulas.encode(),
        [(layer.index, *attrs.astuple(one)) for layer in layers for one in layer.owned],
    )
    _write_contents(machine, bundle)
    return machine


def reset_machine(machine: Machine, bundle: Bundle) -> None:
    """Reset a machine with a loaded bundle to its initial state."""
    reset(machine)
    _write_contents(machine, bundle)


def restore_initial_data(machine: Machine, bundle: Bundle) -> None:
    """Restore ``.data`` and ``.bss``, which each run finds as they were loaded."""
    for start, end in bundle.initialized:
        machine.ram[start - bundle.rw_base : end - bundle.rw_base] = 0
    _write_contents(machine, bundle)


def _write_contents(machine: Machine, bundle: Bundle) -> None:
    for address, values in bundle.contents:
        start = address - bundle.rw_base
        machine.ram[start : start + values.size] = values


def check_outputs_in_dram(bundle: Bundle) -> None:
    """Raise UserError (ARG001) if the output of any layer stays in scratchpads."""
    missing = [layer.display_name for layer in bundle.metadata.layers if layer.in_scratchpads]
    if missing:
        raise fail(
            "ARG001",
            "outputs of layers stay in scratchpads and cannot be saved",
            place=Place(str(bundle.path)),
            found=f"{', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}",
            expected="a program that stores the output of every layer in DRAM",
            hint="Compile the program with `--tiling layer`.",
        )


def make_empty_machine() -> Machine:
    """Make a machine with one core and no program."""
    config = attrs.evolve(default_device(), cores_count=1)
    image = np.zeros(64, np.uint8)
    return make_machine(config, image, DRAM_BASE, DRAM_BASE + image.size, 64, [], [])


def _check_fits(bundle: Bundle, config: DeviceConfig) -> None:
    made_for = bundle.require_device()
    place = Place(str(bundle.path))
    verb, hint = (
        "compiled",
        "Compile the program for this device with `nmpsim compile --device FILE`.",
    )
    if not bundle.has_metadata:
        verb, hint = "linked", "Link the program with `$(nmpsim c-flags --device FILE)`."
    cores = made_for.get("cores_count", config.cores_count)
    if cores != config.cores_count:
        raise fail(
            "BUN004",
            f"the bundle was {verb} for another number of cores",
            place=place,
            found=f"{cores} cores",
            expected=f"{config.cores_count} cores, as the device has",
            hint=hint,
        )
    needed = made_for.get("scratchpad_bytes", bundle.scratchpad_bytes)
    if not isinstance(needed, int) or needed > config.scratchpad_bytes:
        raise fail(
            "BUN004",
            f"the bundle was {verb} for larger scratchpads"
            if isinstance(needed, int)
            else "the bundle's device setting scratchpad_bytes is not a whole number",
            place=place,
            found=f"scratchpad_bytes = {needed!r}"[:80],
            expected=f"at most {config.scratchpad_bytes} bytes",
            hint=hint,
        )
    end = bundle.rw_base + bundle.rw_bytes - DRAM_BASE
    if end > config.dram_bytes:
        raise fail(
            "BUN004",
            "the bundle needs more DRAM than the device has",
            place=place,
            found=f"{end} bytes",
            expected=f"at most {config.dram_bytes} bytes",
            hint="Increase bytes in [dram] of the device file.",
        )
