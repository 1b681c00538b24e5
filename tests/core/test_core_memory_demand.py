"""Test that a run's memory is bounded in advance and that larger runs are refused.

Every bundle here is small; what it asks for is not.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pytest
from corpus import compile_image

import nmpsim
from nmpsim import host_memory
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.core import memory_demand
from nmpsim.core.memory_demand import STEP_BYTES, check_run_memory
from nmpsim.debugger import Debugger
from nmpsim.diagnostics import UserError
from nmpsim.host_memory import (
    SMALL_BYTES,
    PlannedAllocation,
    check_memory,
    get_default_memory_limit,
)
from nmpsim.isa.profiles import NUMERICS_NAMES
from nmpsim.kernels.hostops import HostTensor
from nmpsim.lir.host_execution import execute_operation, find_unsupported_reason

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
LIMIT = 200 << 20
IMAGE = DIGITS / "images" / "7.npy"


@pytest.fixture(scope="module")
def digits() -> Bundle:
    image = compile_image(DIGITS / "digits.lir.txt")
    return parse_bundle(image, "digits.bin")


def with_layer(bundle: Bundle, **changes: Any) -> Bundle:
    layers = list(bundle.metadata.layers)
    layers[1] = attrs.evolve(layers[1], **changes)
    return with_metadata(bundle, layers=tuple(layers))


def with_metadata(bundle: Bundle, **changes: Any) -> Bundle:
    return attrs.evolve(bundle, metadata=attrs.evolve(bundle.metadata, **changes))


def with_device(bundle: Bundle, **changes: int) -> Bundle:
    return with_metadata(bundle, device={**bundle.metadata.device, **changes})


def with_padded_step(bundle: Bundle, pads: tuple[int, ...]) -> Bundle:
    """Return a bundle whose first host step is a max pool with much padding."""
    steps = list(bundle.metadata.steps)
    data, result = (steps[0].operands[i].tensor for i in (1, 0))
    small = attrs.evolve(data, shape=(1, 1, 1, 1))
    operands = tuple(
        attrs.evolve(one, tensor=attrs.evolve(small, address=tensor.address))
        for one, tensor in zip(steps[0].operands, (result, data), strict=True)
    )
    attributes = {"Kernels": (1, 1), "Strides": (1 << 30, 1 << 30), "Pads": pads}
    steps[0] = attrs.evolve(
        steps[0], opcode="maxpool", operands=operands, attributes=attributes, numerics="glow-int"
    )
    return with_metadata(bundle, steps=tuple(steps))


def refusal(bundle: Bundle, **options: Any) -> str:
    """Return the memory error of a run; assert that less than 20 MiB were allocated."""
    config = nmpsim.get_device(bundle)
    tracemalloc.start()
    try:
        with pytest.raises(UserError) as error:
            device = nmpsim.Device(config, max_memory=LIMIT, **options)
            device.run(bundle, {"data": np.load(IMAGE)})
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "MEM001"
    assert diagnostic.place is not None
    assert diagnostic.place.file == "digits.bin"
    return str(diagnostic)


def test_a_barrier_number_is_counted(digits: Bundle) -> None:
    assert "for layers[1].barrier" in refusal(with_layer(digits, barrier=1 << 40))


def test_scratchpads_are_counted(digits: Bundle) -> None:
    text = refusal(with_device(digits, scratchpad_bytes=1 << 26, cores_count=64))
    assert "for device.scratchpad_bytes, in 64 cores" in text
    # 64 times 64 MiB thrice: a first run keeps what it began with, and a byte for each byte says
    # whether it was written.
    assert "12.9 GB" in text


def test_writable_memory_is_counted(digits: Bundle) -> None:
    assert "for the writable segments" in refusal(attrs.evolve(digits, rw_bytes=400_000_000))


def test_channels_of_empty_tensors_are_counted(digits: Bundle) -> None:
    output = attrs.evolve(digits.metadata.layers[1].output, shape=(0, 1 << 31))
    assert "for layers[1].output.shape" in refusal(with_layer(digits, output=output))


def test_paddings_of_host_steps_are_counted(digits: Bundle) -> None:
    text = refusal(with_padded_step(digits, (0, 0, (1 << 30) - 1, (1 << 30) - 1)))
    assert "for steps[0].attributes.Pads" in text


def test_large_numbers_do_not_overflow(digits: Bundle) -> None:
    output = attrs.evolve(digits.metadata.layers[1].output, shape=(1 << 62, 1 << 62))
    assert "MEM001" in refusal(with_layer(digits, output=output, barrier=1 << 100))


def test_threads_are_counted(digits: Bundle) -> None:
    assert "in 3000 threads" in refusal(digits, threads=3000)


def test_the_debugger_checks_memory(digits: Bundle) -> None:
    bundle = with_layer(digits, barrier=1 << 40)
    with pytest.raises(UserError) as error:
        Debugger(bundle, {"data": np.load(IMAGE)}, max_memory=LIMIT)
    assert [one.code for one in error.value.diagnostics] == ["MEM001"]


def test_saved_layers_are_counted(digits: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    device, inputs = nmpsim.Device(max_memory=LIMIT), {"data": np.load(IMAGE)}
    device.run(digits, inputs, save_layers=True)
    monkeypatch.setattr(memory_demand, "count_tensor_bytes", lambda tensor: LIMIT // 2)
    with pytest.raises(UserError, match=r"keeping the layers' outputs .*"):
        device.run(digits, inputs, save_layers=True)
    device.run(digits, inputs)


def test_a_fitting_program_runs(digits: Bundle) -> None:
    report = nmpsim.Device(max_memory=LIMIT).run(digits, {"data": np.load(IMAGE)})
    assert report.trap is None


@pytest.mark.parametrize("limit", [0, -1, 1.5, "1G", True])
def test_an_invalid_limit_is_an_error(limit: Any) -> None:
    with pytest.raises(UserError, match="the memory limit is invalid"):
        nmpsim.Device(max_memory=limit)


def test_the_error_names_the_largest_field() -> None:
    parts = [PlannedAllocation("a", 10), PlannedAllocation("b", 2000), PlannedAllocation("c", 30)]
    check_memory("it", parts, 2040)
    with pytest.raises(UserError) as error:
        check_memory("it", parts, 2039)
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.found == "2.04 kB, including 2 kB for b"
    assert diagnostic.expected == "at most 2.04 kB"


def test_small_demands_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def limit() -> int:
        asked.append(1)
        return 1 << 40

    monkeypatch.setattr(host_memory, "get_default_memory_limit", limit)
    for nbytes in (SMALL_BYTES, SMALL_BYTES + 1):
        check_memory("it", [PlannedAllocation("a", nbytes)])
    assert len(asked) == 1


def test_free_memory_is_positive() -> None:
    assert 1 << 20 < get_default_memory_limit() < 1 << 50


# --- operations of the host -------------------------------------------------------------------

Operands = list[HostTensor]
WINDOW = {"Kernels": (1, 1), "Strides": (1, 1), "Pads": (0, 0, 0, 0), "Dilation": (1, 1)}


def tensor(dtype: str, *shape: int) -> HostTensor:
    values: npt.NDArray[Any] = np.ones(shape, dtype)
    return HostTensor(values, 0.5, 1, True) if values.dtype.kind == "i" else HostTensor(values)


def probabilities(d: str, *shape: int) -> HostTensor:
    """Return a tensor with the scale and zero point of TFLite's softmax output."""
    scale, offset = {"i1": (1 / 256, -128), "i2": (1 / 32768, 0)}.get(d, (1.0, 0))
    return attrs.evolve(tensor(d, *shape), scale=scale, offset=offset)


def greedy_steps(d: str, bias: str) -> dict[str, tuple[str, Operands, dict[str, Any]]]:
    """Return operations that need much memory per element of one of their operands."""
    image, flat = (1, 64, 64, 64), (1, 64, 64, 1)
    convolution = {**WINDOW, "Group": 1}
    pool = {**WINDOW, "CountIncludePads": 0}
    t = tensor
    return {
        "many outputs": (
            "convolution",
            [t(d, *image), t(d, *flat), t(d, 64, 1, 1, 1), t(bias, 64)],
            convolution,
        ),
        "many inputs": (
            "convolution",
            [t(d, *flat), t(d, *image), t(d, 1, 1, 1, 64), t(bias, 1)],
            convolution,
        ),
        "many weights": (
            "convolution",
            [t(d, 1, 1, 1, 512), t(d, 1, 1, 1, 512), t(d, 512, 1, 1, 512), t(bias, 512)],
            convolution,
        ),
        "outer product": (
            "fullyconnected",
            [t(d, 512, 512), t(d, 512, 1), t(d, 1, 512), t(bias, 512)],
            {},
        ),
        "matmul": ("matmul", [t(d, 512, 512), t(d, 512, 1), t(d, 1, 512)], {}),
        "mean": ("avgpool", [t(d, *image), t(d, *image)], pool),
        "add": ("elementadd", [t(d, *image)] * 3, {}),
        "divide": ("elementdiv", [t(d, *image)] * 3, {}),
        "rescale": ("rescalequantized", [t(d, *image)] * 2, {}),
        "softmax": ("softmax", [probabilities(d, 1, 100_000), t(d, 1, 100_000)], {}),
        "sigmoid": ("sigmoid", [t(d, *image)] * 2, {}),
        "reduce": ("batchedreduceadd", [t(d, 64, 64), t(d, 64, 64, 64)], {"Axis": 0}),
    }


@pytest.mark.parametrize(("dtype", "bias"), [("i1", "i4"), ("i2", "i4"), ("f4", "f4")])
@pytest.mark.parametrize("name", greedy_steps("f4", "f4"))
def test_no_operation_exceeds_its_estimated_memory(name: str, dtype: str, bias: str) -> None:
    opcode, operands, attributes = greedy_steps(dtype, bias)[name]
    elements = sum(one.values.size for one in operands)
    for numerics in NUMERICS_NAMES:
        if find_unsupported_reason(opcode, [one.dtype for one in operands], numerics) is not None:
            continue
        tracemalloc.start()
        execute_operation(opcode, operands, attributes, numerics)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= STEP_BYTES * elements + 10_000, numerics


def test_broadcast_shapes_are_refused(digits: Bundle) -> None:
    """NumPy would make one large array of a row and a column."""
    steps = list(digits.metadata.steps)
    tensors = [one.tensor for one in steps[0].operands]
    row, column = (attrs.evolve(tensors[1], shape=shape) for shape in ((1, 64), (64, 1)))
    operands = tuple(
        attrs.evolve(steps[0].operands[0], role=role, tensor=one)
        for role, one in (("out", row), ("in", row), ("in", column))
    )
    steps[0] = attrs.evolve(steps[0], opcode="elementadd", operands=operands, attributes={})
    with pytest.raises(UserError) as error:
        check_run_memory(with_metadata(digits, steps=tuple(steps)), nmpsim.get_device(digits))
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "BUN001"
    assert "<64 x 1>" in str(diagnostic)
