"""Run programs on both engines and compare everything."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle import Bundle
from nmpsim.bundle.metadata import Metadata, Tensor
from nmpsim.config import DeviceConfig
from nmpsim.core.device import RUNS_BEFORE_PROOF, Device
from nmpsim.core.engine_selection import make_compiled_engine
from nmpsim.core.state import Machine
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.report.data import RunReport
from nmpsim.report.json import to_json

MAX_CYCLES = 4000
"""Cycle limit of a run, so that the slower engine finishes within seconds."""
MAX_WHOLE_CYCLES = 100_000
"""Cycle limit where only the compiled engine runs."""
WHOLE_RUNS = RUNS_BEFORE_PROOF + 2
"""Number of runs, of which one of the last two uses layer kernels."""
MAX_INPUT_ELEMENTS = 1 << 16
ENGINES = ("reference", "compiled")
HOST_SECONDS = ("engine", "host_seconds")
"""Fields of a report that may differ."""


@cache
def warm() -> None:
    """Compile all kernels now, so that no input's time includes it."""
    make_compiled_engine().compile_all()


def limit_cycles(config: DeviceConfig) -> DeviceConfig:
    """Return the device with at most ``MAX_CYCLES`` cycles."""
    return attrs.evolve(config, limits_cycles=min(config.limits_cycles, MAX_CYCLES))


def make_inputs(metadata: Metadata) -> dict[str, npt.NDArray[Any]] | None:
    """Return the same values for each input on every call, or None if they are too many."""
    if sum(_elements(tensor) for tensor in metadata.inputs) > MAX_INPUT_ELEMENTS:
        return None
    return {tensor.name: _values(tensor) for tensor in metadata.inputs}


def _elements(tensor: Tensor) -> int:
    return int(np.prod(tensor.shape, dtype=object))


def _values(tensor: Tensor) -> npt.NDArray[Any]:
    dtype, random = ELEM_DTYPES[tensor.elem], np.random.default_rng(1)
    if dtype.kind == "f":
        return random.normal(0, 2, tensor.shape).astype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, tensor.shape).astype(dtype)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, tensor.shape, dtype, endpoint=True)


def run_on_both(
    bundle: Bundle, config: DeviceConfig, inputs: Mapping[str, npt.NDArray[Any]]
) -> RunReport:
    """Assert that the engines agree on a run in reports and machines; return the report.

    Runs continue after a contract violation, because the engines agree on such programs too.
    """
    warm()
    reports, machines = [], []
    for engine in ENGINES:
        device = Device(config, engine, threads=1)
        for _ in range(2 if engine == "compiled" else 1):  # once more, after an earlier run
            reports.append(device.run(bundle, inputs, strict=False))
            after = device.machine_after(bundle)  # the next run changes it
            machines.append(type(after)(*(array.copy() for array in after)))
    first, *others = (_comparable(report) for report in reports)
    for other in others:
        differing = [name for name in first if repr(first[name]) != repr(other[name])]
        assert not differing, f"the engines' reports differ in {differing}"
    for machine in machines[1:]:
        assert_same(machines[0], machine)
    return reports[0]


def run_whole_and_tiled(
    bundle: Bundle, config: DeviceConfig, inputs: Mapping[str, npt.NDArray[Any]]
) -> bool:
    """Repeat a run with and without layer kernels; return whether any layer used one.

    Values of the inputs are permuted from run to run. Scratchpads are compared at the end, since
    whole layers leave them as they were.

    Raises
    ------
    AssertionError
        If reports, DRAM, counters or the final machines differ.
    """
    config = attrs.evolve(config, limits_cycles=min(config.limits_cycles, MAX_WHOLE_CYCLES))
    random = np.random.default_rng(2)
    whole, tiled = (Device(config, "compiled", 1, whole_layers=is_on) for is_on in (True, False))
    was_whole = False
    for _ in range(WHOLE_RUNS):
        given = {name: random.permuted(values) for name, values in inputs.items()}
        reports = [one.run(bundle, given, strict=False) for one in (whole, tiled)]
        mine, theirs = map(_comparable, reports)
        differing = [name for name in mine if repr(mine[name]) != repr(theirs[name])]
        assert not differing, f"reports of whole layers and tiles differ in {differing}"
        if reports[0].trap is not None:
            return False  # it was not replayed
        loaded = [one._loaded for one in (whole, tiled) if one._loaded is not None]
        if loaded[0].inputs is not None:
            was_whole = True
            machines = [one.machine for one in loaded]
            assert_same(*machines, scratchpads=False)
    assert_same(whole.machine_after(bundle), tiled.machine_after(bundle))
    return was_whole


def _comparable(report: RunReport) -> dict[str, Any]:
    return {k: v for k, v in to_json(report).items() if k not in HOST_SECONDS}


def assert_same(a: Machine, b: Machine, scratchpads: bool = True) -> None:
    """Raise AssertionError unless registers, memory and counters are equal byte for byte."""
    for name, mine, theirs in zip(a._fields, a, b, strict=True):
        if not scratchpads and (mine is a.scratchpad or mine.base is a.scratchpad):
            continue
        if mine.tobytes() != theirs.tobytes():
            fields = [f for f in mine.dtype.names or () if not np.array_equal(mine[f], theirs[f])]
            raise AssertionError(f"the machines differ in {name} {fields}")
