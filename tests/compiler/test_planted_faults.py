"""One fault planted in a compiled program: the contract's proof finds it, or it does no harm.

The simulator lets instructions take effect in order, so a missing wait changes nothing here. What
is not found is therefore also run in other orders that a chip may choose, with other costs, and on
memory that held something before: if what the proof let through hangs on that, it has a hole.

Three kinds of faults can also make another program that means something: a buffer that is swapped,
a load that is short or a store that is missing may leave a reader with what an earlier layer or
tile put there. Nothing is unwritten then and all is ordered, only the answer is another one. The
contract is the instruction set's, which knows no tensors, and does not speak of that.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from planted_faults import (
    Fault,
    delay_unit,
    remove_barriers,
    remove_instructions,
    shorten_loads,
    streams,
    swap_buffers,
)

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.config import DeviceConfig
from nmpsim.core import device as device_module
from nmpsim.core.state import Machine
from nmpsim.isa.table import Unit
from nmpsim.report.data import RunReport

ORDER = {"unit_order", "core_order", "host_order"}
UNWRITTEN = {"scratchpad_unwritten", "dram_unwritten", "host_reads_unwritten"}


@attrs.frozen(eq=False)
class Network:
    """Compiled network that can be run with faults in it."""

    bundle: Bundle
    inputs: Mapping[str, np.ndarray[Any, Any]]
    config: DeviceConfig
    _devices: dict[str, nmpsim.Device] = attrs.field(factory=dict)

    def run(self, bundle: Bundle, strict: bool = False, **costs: int) -> tuple[RunReport, bytes]:
        """Run a bundle and return the report and the contents of all memory at the end."""
        device = self._devices.get(str(costs))
        if device is None:
            device = nmpsim.Device(attrs.evolve(self.config, **costs), threads=1)
            self._devices[str(costs)] = device
        report = device.run(bundle, self.inputs, strict=strict)
        machine = device.machine_after(bundle)
        return report, machine.ram.tobytes() + machine.scratchpad.tobytes()

    def delay_units(self, bundle: Bundle) -> list[Bundle]:
        """Return one program for each unit, in which this unit is as late as possible."""
        parts, depth = streams(bundle), self.config.queues_depth
        return [delay_unit(bundle, parts, unit, depth) for unit in Unit]


def network(shared: Path, name: str, cores: int, scratchpad_bytes: int) -> Network:
    config = attrs.evolve(
        nmpsim.default_device(), cores_count=cores, scratchpad_bytes=scratchpad_bytes
    )
    stem = shared / "lir" / name
    npz = stem.with_name(stem.name + ".npz")
    lir = stem.with_name(stem.name + ".lir.txt")
    bundle = parse_bundle(nmpsim.compile(lir, npz, device=config).image)
    with np.load(npz) as file:
        inputs = {one.name: file[f"input/{one.name}"] for one in bundle.metadata.inputs}
    return Network(bundle, inputs, config)


@pytest.fixture(scope="module", params=[
    ("lenet/i8_asym_b32/cpu", 2, 1 << 14),
    pytest.param(("lenet/i16_pow2_b16/nmp", 3, 1 << 15), marks=pytest.mark.slow),
])  # fmt: skip
def net(shared: Path, request: pytest.FixtureRequest) -> Network:
    return network(shared, *request.param)


def assert_deterministic(net: Network, fault: Fault, report: RunReport, memory: bytes) -> None:
    """Assert that results depend on neither timing nor what memory held before."""
    what = f"{fault.kind}: {fault.what}"
    for other in net.delay_units(fault.bundle):
        assert net.run(other)[1] == memory, f"hangs on a unit's speed: {what}"
    for costs in ({"dram_latency_cycles": 3000}, {"mac_startup_cycles": 5000}):
        assert net.run(fault.bundle, **costs)[1] == memory, f"hangs on costs: {what}"
    with pytest.MonkeyPatch.context() as patch:
        filled = fill_after_reset(device_module.reset_machine)
        patch.setattr(device_module, "reset_machine", filled)
        outputs = net.run(fault.bundle)[0].outputs
    for name, values in report.outputs.items():
        assert values.tobytes() == outputs[name].tobytes(), f"hangs on what was before: {what}"


def fill_after_reset(
    reset: Callable[[Machine, Bundle], None],
) -> Callable[[Machine, Bundle], None]:
    """Return a reset after which memory is filled with a constant byte."""

    def reset_to_something(machine: Machine, bundle: Bundle) -> None:
        reset(machine, bundle)
        for memory in (machine.ram, machine.scratchpad):
            memory[...] = 0x5B

    return reset_to_something


def count_verdicts(net: Network, faults: Iterable[Fault]) -> Counter[str]:
    """Count the faults by the case that was found, or as ``harmless`` or ``another program``."""
    memory = net.run(net.bundle)[1]
    counts: Counter[str] = Counter()
    for fault in faults:
        report, after = net.run(fault.bundle, strict=True)
        if report.contract.violation is not None:
            counts[report.contract.violation.case] += 1
        elif report.trap is not None:
            counts[report.trap.kind] += 1
        else:
            assert report.contract.status == "proved"
            assert_deterministic(net, fault, report, after)
            counts["harmless" if after == memory else "another program"] += 1
    return counts


def assert_found(counts: Counter[str], allowed: set[str], share: float) -> None:
    """Assert that only allowed cases are found, and at least this share of the faults."""
    missed = counts["harmless"] + counts["another program"]
    assert set(counts) <= allowed | {"harmless", "another program"}, counts
    assert missed <= (1 - share) * counts.total(), counts


def test_the_program_without_fault_passes(net: Network) -> None:
    report, memory = net.run(net.bundle, strict=True)
    assert report.contract.status == "proved"
    assert_deterministic(net, Fault("none", "", net.bundle), report, memory)


def test_a_missing_wait_is_found(net: Network) -> None:
    counts = count_verdicts(net, remove_instructions(net.bundle, "nmp.wait"))
    assert_found(counts, ORDER, 0.7)
    assert counts["another program"] == 0


def test_a_missing_wait_does_harm_on_a_chip(net: Network) -> None:
    """Of every ten that are found; so the other orders are such that they tell a difference."""
    memory = net.run(net.bundle)[1]
    found = harmful = 0
    for fault in itertools.islice(remove_instructions(net.bundle, "nmp.wait"), 0, None, 10):
        if net.run(fault.bundle, strict=True)[0].contract.status == "violated":
            found += 1
            harmful += any(net.run(other)[1] != memory for other in net.delay_units(fault.bundle))
    assert harmful > found / 2, (harmful, found)


def test_a_missing_or_small_barrier_is_found(net: Network) -> None:
    """That all cores have stopped and wait for each other is an end of its own."""
    counts = count_verdicts(net, remove_barriers(net.bundle))
    assert_found(counts, {*ORDER, *UNWRITTEN, "barrier_counts", "deadlock"}, 0.8)
    assert counts["another program"] == 0


def test_a_missing_store_is_found(net: Network) -> None:
    counts = count_verdicts(net, remove_instructions(net.bundle, "nmp.store"))
    assert_found(counts, UNWRITTEN, 0.3)
    assert counts["harmless"] == 0


def test_a_short_load_is_found(net: Network) -> None:
    """Weights that end too early also leave a tail behind the last one that is not zero."""
    counts = count_verdicts(net, shorten_loads(net.bundle))
    assert_found(counts, {*UNWRITTEN, "weight_tail"}, 0.4)


def test_swapped_buffers_are_found(net: Network) -> None:
    """``trap``: an instruction that would write onto its operands."""
    counts = count_verdicts(net, swap_buffers(net.bundle))
    assert_found(counts, {*ORDER, *UNWRITTEN, "weight_tail", "trap"}, 0.8)
