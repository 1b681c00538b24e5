"""Jobs that run in a worker: functions of the shared data and of one item."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import attrs
import numpy as np

from nmpsim.arrays import Arrays
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.config import DeviceConfig, default_device, make_device_config
from nmpsim.core import batch
from nmpsim.core.device import Device
from nmpsim.core.engine_selection import make_compiled_engine
from nmpsim.core.limits import NO_LIMITS, Limits
from nmpsim.core.load import make_empty_machine
from nmpsim.diagnostics import UserError
from nmpsim.experiments.samples import is_vector_shape
from nmpsim.kernels.array_types import Float64s, Int64s
from nmpsim.report.data import OutputReport, RunReport
from nmpsim.timing import get_costs

if TYPE_CHECKING:
    from nmpsim.analysis.program import Program
    from nmpsim.analysis.shadow.evaluate import Floats
    from nmpsim.experiments.error_meter import ErrorMeter
    from nmpsim.experiments.layer_errors import LayerErrors

_turn = threading.Lock()
"""Held during a run, as a device does one at a time; a Dask worker may have several threads."""


def are_kernels_ready(_: object, __: object) -> bool:
    """Return whether all kernels are compiled on the machine of this pool worker."""
    return make_compiled_engine().is_complete()


def compile_kernels(_: object, __: object) -> None:
    """Compile all kernels into the cache of the machine of this pool worker."""
    engine = make_compiled_engine()
    engine.run(make_empty_machine(), get_costs(default_device()), 0, False)
    engine.compile_all()


@attrs.frozen
class SweepPoint:
    """Point of a sweep: its index in the grid, and its device."""

    index: int
    device: DeviceConfig


@attrs.frozen(eq=False)
class SweepWork:
    """Data that all points of a sweep share: program, inputs and limits."""

    program: Program
    inputs: Arrays
    max_memory: int | None = None
    """Bytes that a worker may take."""
    limits: Limits = NO_LIMITS


@attrs.frozen(eq=False)
class PointResult:
    """Result of one sweep point: compile time, and a report without outputs or an error."""

    index: int
    compile_seconds: float
    report: RunReport | None
    error: UserError | None = None


def measure_point(work: SweepWork, point: SweepPoint) -> PointResult:
    """Compile and run the program on the device of a sweep point; return the result.

    That it does not fit the device is a result; any other error is raised.
    """
    with _turn:
        begin = time.perf_counter()
        try:
            bundle = work.program.compile(point.device)
        except UserError as error:
            if not all(one.code == "COMP002" for one in error.diagnostics):
                raise
            return PointResult(point.index, time.perf_counter() - begin, None, error)
        seconds = time.perf_counter() - begin
        device = Device(point.device, threads=1, max_memory=work.max_memory)
        report = device.run(bundle, work.inputs, limits=work.limits)
    return PointResult(point.index, seconds, attrs.evolve(report, outputs={}, output_reports=()))


@attrs.frozen
class EvalWork:
    """Data that all samples of an evaluation share: bundle, limits and float weights."""

    image: bytes
    """Contents of the bundle file."""
    path: str
    max_memory: int | None = None
    """Bytes that a worker may take."""
    limits: Limits = NO_LIMITS
    """Limits of each run."""
    measures_errors: bool = False
    """Whether each layer is also evaluated in real arithmetic."""
    floats: Floats | None = attrs.field(default=None, eq=False)
    """Float values of constants for this evaluation, in the LIR's layout."""


@attrs.frozen(eq=False)
class Chunk:
    """Chunk of an evaluation: the indices, arrays and labels of consecutive samples."""

    indices: Sequence[int]
    samples: Sequence[Arrays]
    labels: Sequence[int]


@attrs.frozen
class Prediction:
    """Prediction for one sample: best class, rank of the label, cycles and error."""

    index: int
    best: int | None
    """Best class; None if the run did not reach its end."""
    rank: int | None
    """Number of classes with a higher score than the right one."""
    cycles: int
    error: str | None = None


@attrs.frozen(eq=False)
class ChunkResult:
    """Result of one chunk: its predictions, and the saturation and errors of each layer."""

    predictions: tuple[Prediction, ...]
    layers: tuple[tuple[int, int], ...]
    """(elements, saturated values) of each layer, over the completed runs."""
    errors: tuple[LayerErrors, ...] = ()
    """Errors of each layer, over the completed runs; empty if they are not measured."""


def evaluate_chunk(work: EvalWork, chunk: Chunk) -> ChunkResult:
    """Run the samples of a chunk in a pool worker; return predictions and saturation counts."""
    with _turn:
        bundle, device = _load_device(work)
        found = device.run_batch(bundle, chunk.samples, limits=work.limits, reset_state=True)
        errors: tuple[LayerErrors, ...] = ()
        if work.measures_errors:
            completed = [
                inputs
                for inputs, run in zip(chunk.samples, found.runs, strict=True)
                if run.trap is None
            ]
            errors = _load_meter(work).measure(completed, work.limits)
    orders = rank_classes(np.stack([get_scores(run.outputs) for run in found.runs]))
    ranks = (orders == np.array(chunk.labels)[:, None]).argmax(axis=1)
    columns = (chunk.indices, found.runs, orders[:, 0].tolist(), ranks.tolist())
    told = tuple(_make_prediction(*one) for one in zip(*columns, strict=True))
    layers = tuple(found.layers) or ((0, 0),) * len(bundle.metadata.layers)
    return ChunkResult(told, layers, errors)


@lru_cache(maxsize=1)
def _load_meter(work: EvalWork) -> ErrorMeter:
    """Return the meter of errors of a program, prepared once in a process."""
    from nmpsim.experiments.error_meter import ErrorMeter

    bundle, device = _load_device(work)
    return ErrorMeter(bundle, work.floats, device.config, work.max_memory)


@lru_cache(maxsize=1)
def _load_device(work: EvalWork) -> tuple[Bundle, Device]:
    """Return the bundle and its device, loaded once in a process."""
    bundle = parse_bundle(work.image, work.path)
    config = make_device_config(bundle.metadata.device)
    return bundle, Device(config, threads=1, max_memory=work.max_memory)


def release_device() -> None:
    """Release the cached device and its bundle."""
    _load_meter.cache_clear()
    _load_device.cache_clear()


def _make_prediction(index: int, run: batch.SampleResult, best: int, rank: int) -> Prediction:
    if run.trap is not None:
        error = f"{run.trap.kind}: {run.trap.message}"
        return Prediction(index, None, None, run.cycles, error)
    return Prediction(index, best, rank, run.cycles)


def get_scores(outputs: Sequence[OutputReport]) -> Float64s:
    """Return the dequantized scores [C] of the first output that has one score per class."""
    output = next(one for one in outputs if is_vector_shape(one.values.shape))
    return output.dequantize().astype(np.float64).reshape(-1)


def rank_classes(scores: Float64s) -> Int64s:
    """Return the classes [..., C] by descending score; ties are ordered by class."""
    return np.argsort(-scores, axis=-1, kind="stable")
