"""Sample run reports for tests of views."""

from typing import Any

import attrs
import numpy as np

from nmpsim.config import default_device
from nmpsim.lir.names import get_operation_name
from nmpsim.report.analyses import (
    Histogram,
    MemoryBlock,
    MovedSetting,
    ScratchpadBlock,
    SensitivityReport,
    SettingEffect,
    Timeline,
    WorkSpan,
)
from nmpsim.report.data import Bound, BytesMoved, LayerReport, OutputReport, RunReport, Saturation
from nmpsim.report.device_use import compute_device_use
from nmpsim.report.termination import TrapReport

STALLS = {"control": 10, "wait_mac": 60, "wait_load": 20, "barrier": 9, "idle": 1}

PATH = {"mac": 600, "dram_service": 200, "row_miss": 50, "latency": 80, "control": 70}
CORE_CYCLES = {"mac": 60, "load": 15, "contention": 5, "imbalance": 9, "idle": 1, "control": 10}


def layer(index: int, name: str = "", **values: Any) -> LayerReport:
    """Return the report of a device layer of 1000 cycles."""
    usual: dict[str, Any] = {
        "op": "convolution",
        "number": 10 + index,
        "line": 30 + index,
        "placement": "device",
        "reason": "",
        "numerics": "glow-int",
        "fused": (),
        "shape": (1, 28, 28, 16),
        "elem": "i8",
        "scale": 0.1,
        "offset": -128,
        "cycles": 1000,
        "cores": 1,
        "macs": 50_000,
        "utilization": 0.25,
        "bytes": BytesMoved(1000, 500),
        "bursts": 20,
        "row_misses": 3,
        "stalls": STALLS,
        "busy": {"load": 100, "store": 50, "mac": 800, "vector": 0},
        "elements": 12_544,
        "saturation": (),
        "core_cycles": CORE_CYCLES,
        "critical_path": PATH,
        "queueing": 70,
        "bound": Bound(mac=782, memory=80, formula="50000 MACs / (1 cores x 64 MACs a cycle)"),
        "burst_efficiency": 1500 / 1280,
    }
    name = name or f"layer{index}"
    usual |= {"display_name": name, "operation": get_operation_name(str((usual | values)["op"]))}
    made = LayerReport(index=index, name=name, **(usual | values))
    return attrs.evolve(made, use=compute_device_use([made], made.cycles, 1))


CUTS = (
    Saturation("rescale", "high", 7, 12_544, 300, (0, 1, 2, 3), ((3, 5), (4, 2))),
    Saturation("activation", "low", 6000, 12_544, 90, (0, 0, 0, 0), ((0, 6000),)),
)
TRAP = TrapReport(
    kind="trap",
    message="load outside every memory",
    core=3,
    pc=0x8000_1230,
    cause=5,
    value=0x1000,
    instruction="lw a0, 0(a1)",
    layer="conv1",
    line=31,
)


def sample_report(**changes: Any) -> RunReport:
    """Return the report of a completed run of a small classifier."""
    probabilities = np.array([[0.1, 0.7, 0.05, 0.0, 0.05, 0.1]], np.float32)
    report = RunReport(
        program="lenet",
        device=default_device().settings(),
        sources=default_device().sources,
        engine="compiled",
        numerics="glow-int",
        outputs={"prob": probabilities},
        output_reports=(OutputReport("prob", "float", None, None, probabilities),),
        cycles=3500,
        seconds=3500 / 800e6,
        host_seconds=0.0123,
        layers=(
            layer(0, "a_rather_long_network_name__stage1_block1_conv1_res", saturation=CUTS),
            layer(1, "fc", op="channelwisequantizedconvolution", cycles=2499, shape=(1, 10)),
            layer(
                2,
                "softmax",
                op="softmax",
                placement="host",
                reason="float softmax",
                cycles=1,
                cores=0,
                macs=0,
                utilization=0.0,
                elem="float",
                shape=(1, 6),
                scale=None,
                offset=None,
            ),
        ),
    )
    return attrs.evolve(report, **changes)


def detailed_report(**changes: Any) -> RunReport:
    """Return the report of that run with all optional parts."""
    details = {
        "histograms": (
            Histogram(1, "fc", -128.0, 1.0, tuple(range(256))),
            Histogram(2, "softmax", 0.0, 0.1, (5, 0, 1), not_finite=2),
        ),
        "memory": (
            MemoryBlock("constants", "program", 0x8000_0000, 4096, 0, 2),
            MemoryBlock("data", "input", 0x8000_1000, 784, 0, 2),
            MemoryBlock("conv1", "activation", 0x8000_1400, 12_544, 0, 1),
        ),
        "edges": ((0, 1), (0, 2), (1, 2)),
        "timeline": Timeline(
            8,
            (
                WorkSpan(0, "load", 0, 10, 200, 180),
                WorkSpan(0, "mac", 0, 200, 900, 650),
                WorkSpan(1, "mac", 1, 1000, 3000, 1900),
                WorkSpan(1, "store", None, 3000, 3100, 100),
            ),
        ),
        "scratchpads": (
            ScratchpadBlock(0, "loaded", 0, 65_536, 2),
            ScratchpadBlock(0, "both", 65_536, 98_304, 1),
            ScratchpadBlock(1, "computed", 0, 1024, 1),
        ),
        "sensitivity": SensitivityReport(
            cycles=3500,
            share=0.2,
            effects=(
                SettingEffect(
                    "dram_latency_cycles",
                    40,
                    MovedSetting(32, 3300),
                    MovedSetting(48, None),
                    "same",
                    0.06,
                ),
            ),
            skipped=(),
        ),
    }
    return sample_report(**(details | changes))
