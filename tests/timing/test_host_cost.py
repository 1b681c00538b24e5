"""Test the cycles of host layers by hand, and the totals with and without them."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.bundle.metadata import HostOperand, ProgramStep, Tensor
from nmpsim.config import default_device
from nmpsim.core.build_report import compute_host_cycles
from nmpsim.report.device_use import HostWork
from nmpsim.views.run_text import list_run_totals

DIGITS = Path(__file__).parents[2] / "programs" / "digits"

COSTS = {
    "host_operation_cycles": 7,
    "host_kilo_mac_cycles": 100,
    "host_kilo_element_cycles": 10,
    "host_kilo_function_cycles": 1000,
}
DEVICE = attrs.evolve(default_device(), **COSTS)
WITHOUT_COSTS = attrs.evolve(default_device(), **dict.fromkeys(COSTS, 0))


def step(opcode: str, *shapes: tuple[int, ...]) -> ProgramStep:
    """Build a host step with a result and operands of these shapes."""
    roles = ("out", *["in"] * (len(shapes) - 1))
    operands = tuple(
        HostOperand(role, Tensor(f"t{n}", "float", shape, 0, None, None))
        for n, (role, shape) in enumerate(zip(roles, shapes, strict=True))
    )
    return ProgramStep("host", (0,), opcode=opcode, operands=operands)


@pytest.mark.parametrize(
    ("of", "cycles"),
    [
        # 2x4x4 results of 6 channels, each of 3x3x5 weights: 192 x 45 = 8,640 multiplications.
        (step("convolution", (2, 4, 4, 6), (2, 4, 4, 5), (6, 3, 3, 5), (6,)), 7 + 864),
        # Two groups: each channel sees 5 of 10.
        (step("convolution", (2, 4, 4, 6), (2, 4, 4, 10), (6, 3, 3, 5), (6,)), 7 + 864),
        # 3 rows of 11 results, each of 20 weights: 660 multiplications.
        (step("fullyconnected", (3, 11), (3, 20), (20, 11), (11,)), 7 + 66),
        (step("matmul", (3, 11), (3, 20), (20, 11)), 7 + 66),
        # 1,001 results of ten a thousand: 10.01, rounded up.
        (step("elementadd", (7, 11, 13), (7, 11, 13), (7, 11, 13)), 7 + 11),
        (step("dequantize", (100,), (100,)), 7 + 1),
        (step("softmax", (1, 10), (1, 10)), 7 + 10),
        (step("maxpool", (1, 2, 2, 8), (1, 4, 4, 8)), 7 + 32),
        (step("softmax", (0, 10), (0, 10)), 7),
    ],
)
def test_cycles_of_the_host_equal_a_count_by_hand(of: ProgramStep, cycles: int) -> None:
    assert compute_host_cycles(of, DEVICE) == cycles
    assert compute_host_cycles(of, WITHOUT_COSTS) == 0


def test_the_default_device_assumes_costs_of_the_host() -> None:
    """2 multiplications, 1/2 simple results or 1/40 functions a cycle of 1 GHz; 1 us to start."""
    device = default_device()
    hertz, host_hertz = device.cores_clock_mhz * 10**6, 10**9
    for name, host_cycles in {
        "host_operation_cycles": 1000,
        "host_kilo_mac_cycles": 1000 / 2,
        "host_kilo_element_cycles": 1000 * 2,
        "host_kilo_function_cycles": 1000 * 40,
    }.items():
        assert getattr(device, name) == host_cycles * hertz / host_hertz
        assert device.sources[name] == "assumed"


@pytest.fixture(scope="module")
def bundle() -> nmpsim.Compiled:
    return nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz")


def run(bundle: nmpsim.Compiled, config: nmpsim.DeviceConfig) -> nmpsim.RunReport:
    device = nmpsim.Device(config, engine="reference")
    return device.run(bundle, [np.load(DIGITS / "images" / "7.npy")])


def test_a_total_includes_the_host_or_a_note(bundle: nmpsim.Compiled) -> None:
    without, counted = run(bundle, WITHOUT_COSTS), run(bundle, DEVICE)
    host = [layer for layer in counted.layers if layer.placement == "host"]
    elements = sum(int(np.prod(layer.shape)) for layer in host)
    assert len(host) > 1

    assert without.host == HostWork(len(host), elements, None)
    assert dict(list_run_totals(without))["latency"].endswith(
        f"; + {len(host)} host layers, {elements:,} elements, not counted"
    )

    added = sum(layer.cycles for layer in host)
    assert all(layer.cycles >= COSTS["host_operation_cycles"] for layer in host)
    assert counted.host == HostWork(len(host), elements, added)
    assert counted.cycles == without.cycles + added == sum(one.cycles for one in counted.layers)
    assert counted.seconds == pytest.approx(counted.cycles / 800e6)
    assert dict(list_run_totals(counted))["latency"].endswith(
        f"; {without.cycles:,} on the device, {added:,} on the host (assumed)"
    )
    assert counted.limited_by.startswith("limited by ")
    costly = attrs.evolve(DEVICE, host_operation_cycles=10**6)
    assert run(bundle, costly).limited_by.startswith("limited by the host: a free host would save")
    given = attrs.evolve(DEVICE, sources=dict.fromkeys(COSTS, "measured"))
    assert dict(list_run_totals(run(bundle, given)))["latency"].endswith(" on the host")


def test_the_device_clock_excludes_the_host(bundle: nmpsim.Compiled) -> None:
    without, counted = run(bundle, WITHOUT_COSTS), run(bundle, DEVICE)
    assert counted.device_cycles == without.cycles
    assert counted.use == without.use
    assert [one.core_cycles for one in counted.layers] == [
        one.core_cycles for one in without.layers
    ]
