"""Laws of every run: all cycles have a cause, no bound is beaten, more is not slower."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from core_machines import (
    HALT,
    IMAGE_BASE,
    RAM_BASE,
    SPM,
    Program,
    descriptor_bytes,
    device,
    load_address,
    run,
    words,
)
from corpus import compiled
from device_files import device_files
from hypothesis import given
from hypothesis import strategies as st
from recorded_programs import Recorded, Recording, int8_programs
from report_laws import check_laws
from tiers import each_value, examples, program_parts

import nmpsim
from nmpsim import dram_presets
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.config import DeviceConfig
from nmpsim.report.json import to_json

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "programs" / "digits"
CORES = 4
MORE = (
    "mac_out_lanes",
    "mac_in_lanes",
    "vector_lanes",
    "queues_depth",
    "dma_fill_bytes_per_cycle",
    "dram_bytes_per_cycle",
)
"""Settings of which more is better."""


@cache
def digits() -> Bundle:
    config = device(CORES)
    return parse_bundle(
        nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz", device=config).image
    )


def seven() -> dict[str, Any]:
    return {"data": np.load(DIGITS / "images" / "7.npy")}


@pytest.mark.parametrize("name", each_value(int8_programs(), program_parts))
def test_recorded_programs_obey_the_laws(name: str, shared: Path) -> None:
    recording = Recording(Recorded(name))
    config = device(CORES)
    bundle = compiled(recording.program.text, device=config)
    for seed in (None, 1, 2):
        chosen = config if seed is None else seeded_device(seed)
        report = nmpsim.Device(chosen).run(bundle, recording.inputs())
        check_laws(report, chosen)
        assert report.cycles == nmpsim.Device(chosen).run(bundle, recording.inputs()).cycles


def seeded_device(seed: int) -> DeviceConfig:
    """Build a device with random settings."""
    rng = np.random.default_rng(seed)
    pick = {name: int(rng.integers(1, 40)) for name in MORE if name != "queues_depth"}
    pick |= {
        "queues_depth": int(rng.integers(1, 9)),
        "dram_burst_bytes": int(rng.choice([16, 32, 128])),
        "dram_row_bytes": int(rng.choice([256, 1024])),
        "dram_latency_cycles": int(rng.integers(0, 100)),
        "control_descriptor_cycles": int(rng.integers(0, 20)),
        "sync_barrier_cycles": int(rng.integers(0, 40)),
    }
    return device(CORES, **pick)


@given(device_files(CORES))
@examples(25)
def test_random_devices_obey_the_laws(config: DeviceConfig) -> None:
    check_laws(nmpsim.Device(config).run(digits(), seven()), config)


@pytest.mark.parametrize("preset", dram_presets.list_presets())
def test_presets_obey_the_laws(preset: str, tmp_path: Path) -> None:
    path = tmp_path / "device.toml"
    path.write_text(f'[cores]\ncount = {CORES}\n[dram]\npreset = "{preset}"\n', encoding="utf-8")
    config = nmpsim.load_device(path)
    check_laws(nmpsim.Device(config).run(digits(), seven()), config)


@given(device_files(CORES))
@examples(4)
def test_both_engines_give_the_same_report(config: DeviceConfig) -> None:
    reports = [
        to_json(nmpsim.Device(config, engine).run(digits(), seven()))
        for engine in ("compiled", "reference")
    ]
    for report in reports:
        del report["engine"], report["host_seconds"]
    assert reports[0]["contract"]["status"] == "proved"
    assert reports[0] == reports[1]


SLOT = 128
Instruction = tuple[str, dict[str, int]]
PRODUCT = {
    "lhs": SPM,
    "rhs": SPM + 512,
    "output": SPM + 2048,
    "partial": SPM + 4096,
    "rows": 7,
    "inner": 30,
    "columns": 20,
    "lhs_stride": 30,
    "rhs_stride": 20,
    "out_stride": 20,
    "clip_high": 127,
}


def box(dram: int, run_bytes: int, rows: int, **pads: int) -> dict[str, int]:
    place = {"dram": RAM_BASE + dram, "spm": SPM, "dram_stride_y": 700, "spm_stride_y": run_bytes}
    return {**place, "run_bytes": run_bytes, "count_x": 1, "count_y": rows, **pads}


JOBS: list[tuple[str, bytes]] = [
    ("nmp.load", descriptor_bytes("load", box(0, 300, 1))),
    ("nmp.load", descriptor_bytes("load", box(4000, 60, 5, pad_y_after=3))),
    ("nmp.load", descriptor_bytes("load", box(8000, 4100, 1))),
    ("nmp.fill", descriptor_bytes("fill", {"output": SPM + 50, "count": 900, "value": 7})),
    ("nmp.gemm", descriptor_bytes("gemm", PRODUCT)),
]
TABLE = b"".join(record.ljust(SLOT, b"\0") for _, record in JOBS)


@st.composite
def one_queue_programs(draw: st.DrawFn) -> bytes:
    """Draw the code of one core that loads, computes and waits."""
    code: list[Instruction] = []
    for _ in range(draw(st.integers(1, 12))):
        if draw(st.booleans()):
            number = draw(st.integers(0, len(JOBS) - 1))
            code += [*load_address(5, IMAGE_BASE + SLOT * number), (JOBS[number][0], {"rs1": 5})]
        else:
            unit = draw(st.sampled_from([0, 2, 3]))
            code.append(("nmp.wait", {"unit": unit, "outstanding": draw(st.integers(0, 3))}))
    waits = [("nmp.wait", {"unit": unit, "outstanding": 0}) for unit in (0, 2, 3)]
    return TABLE + words(*code, *waits, HALT)


def count_cycles(image: bytes, config: DeviceConfig) -> int:
    _, m = run("compiled", Program(image=image, entry=IMAGE_BASE + len(TABLE), config=config))
    return int(m.cores.clock.max())


@given(one_queue_programs(), device_files(1), st.sampled_from(MORE), st.integers(1, 40))
@examples(200)
def test_more_is_not_slower_with_one_queue(
    image: bytes, config: DeviceConfig, setting: str, more: int
) -> None:
    most = 16 if setting == "queues_depth" else 4096
    raised = attrs.evolve(config, **{setting: min(getattr(config, setting) + more, most)})
    assert count_cycles(image, raised) <= count_cycles(image, config)


@cache
def assemble_program(name: str, cores: int) -> Bundle:
    from nmpsim.bundle.assembly import assemble

    text = (ROOT / "programs" / "assembly" / f"{name}.s").read_text(encoding="utf-8")
    return parse_bundle(assemble(text, name, device(cores).settings()).build_bundle())


def run_cycles(name: str, config: DeviceConfig) -> int:
    bundle = assemble_program(name, config.cores_count)
    inputs = {
        t.name: np.zeros(t.shape, np.int16 if t.elem == "i16" else np.int8)
        for t in bundle.metadata.inputs
    }
    return nmpsim.Device(config).run(bundle, inputs).cycles


@pytest.mark.parametrize("name", ["dma_copy", "one_conv", "int16_conv", "barrier", "contention"])
@given(config=device_files(2), setting=st.sampled_from(MORE), more=st.integers(1, 40))
@examples(30)
def test_more_is_not_slower_for_the_assembly_programs(
    name: str, config: DeviceConfig, setting: str, more: int
) -> None:
    most = 16 if setting == "queues_depth" else 4096
    raised = attrs.evolve(config, **{setting: min(getattr(config, setting) + more, most)})
    assert run_cycles(name, raised) <= run_cycles(name, config)


@pytest.mark.parametrize("name", ["dma_copy", "one_conv", "int16_conv", "barrier", "contention"])
@pytest.mark.parametrize("cores", [3, 8, 64])
def test_more_cores_are_not_slower(name: str, cores: int) -> None:
    assert run_cycles(name, device(cores)) <= run_cycles(name, device(2))
