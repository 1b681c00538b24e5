"""Compile a module, check its code, run it, and compare everything with the oracle."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import attrs
import numpy as np
from action_recount import check_actions
from instruction_streams import check_streams
from lir_oracle import Execution, run_module
from program_writer import Program
from report_laws import LaterExecutions, check_laws, check_overshoots, count_multiplications
from tiers import tiling

from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.config import DeviceConfig
from nmpsim.core.device import Device
from nmpsim.diagnostics import UserError
from nmpsim.report.data import LayerReport, RunReport

Array = np.ndarray[Any, Any]
ALWAYS_ENOUGH = 65536


@attrs.frozen(eq=False)
class Run:
    """Bundle of a compiled module and the report of its run."""

    bundle: Bundle
    report: RunReport


def compile_program(
    program: Program, config: DeviceConfig, fuse: bool, **options: Any
) -> Bundle | None:
    """Return the bundle, or None if the device's scratchpad is too small for a tile.

    By default each layer is tiled separately, so that the outputs of all layers can be checked.
    """
    options = {"tiling": "layer"} | options
    try:
        return parse_bundle(
            compile_module(
                program.module,
                config,
                numerics=program.numerics,
                layer_numerics=program.by_layer,
                fuse_activations=fuse,
                **options,
            )
        )
    except UserError as error:
        check_refusal(error, config)
        return None


def check_refusal(error: UserError, config: DeviceConfig) -> None:
    """Assert that a refusal is due to the scratchpad and states how many bytes are needed."""
    (finding,) = error.diagnostics
    assert finding.code == "COMP002", str(error)
    assert config.scratchpad_bytes < ALWAYS_ENOUGH
    assert finding.found is not None
    assert finding.hint and finding.place and finding.place.line
    assert int(finding.found.split()[0]) > config.scratchpad_bytes


def check_program(program: Program, config: DeviceConfig, engine: str = "compiled") -> None:
    """Check outputs, layers, cycle counts, saturation and code, with and without fusion."""
    done, final = run_module(
        program.module, program.inputs, program.numerics, profiles_by_name(program, config)
    )
    unfused, fused = (compile_program(program, config, fuse) for fuse in (False, True))
    is_same = fused is not None and unfused is not None and fused.digest == unfused.digest
    for bundle, fuse in ((unfused, False), (fused, True)):
        if bundle is None or (fuse and is_same):
            continue
        check_streams(bundle, config)
        device = Device(config, engine)
        works: list[Any] = []
        report = device.run(bundle, program.inputs, save_layers=True, work=works.append)
        check_laws(report, config)
        check_actions(report, works, bundle, config)
        runs = [device.run(bundle, program.inputs)]
        if fuse or is_same:
            runs.append(device.run(bundle, program.inputs))  # layers at once, where they are proved
        for run in runs:
            assert run.layers == report.layers
        for name, values in report.outputs.items():
            np.testing.assert_array_equal(values, final[name], err_msg=name)
            for run in runs:
                np.testing.assert_array_equal(values, run.outputs[name], err_msg=name)
        check_layers(report, done, fuse, {o.name for o in program.module.weights if not o.constant})
        if not fuse:
            check_same_saturation(program, config, report)


def make_large_core(config: DeviceConfig) -> DeviceConfig:
    """Return the device with one core and a scratchpad that holds every tile."""
    return attrs.evolve(config, cores_count=1, scratchpad_bytes=1 << 22)


def profiles_by_name(program: Program, config: DeviceConfig) -> dict[str, str]:
    """Return the given profiles by instruction, extended to what fuses with it."""
    profiles = dict(program.by_layer)
    if not profiles:
        return profiles
    bundle = compile_program(program, make_large_core(config), fuse=True, **tiling())
    assert bundle is not None
    for layer in bundle.metadata.layers:
        given = {program.by_layer[name] for name in layer.fused if name in program.by_layer}
        assert len(given) <= 1, layer.name
        for profile in given:
            profiles |= dict.fromkeys(layer.fused, profile)
    return profiles


def check_same_saturation(program: Program, config: DeviceConfig, report: RunReport) -> None:
    """Assert that saturation does not depend on how layers are sliced.

    Accumulators are excepted: they saturate in the order of their partial sums.
    """
    plain = make_large_core(config)
    bundle = compile_program(program, plain, fuse=False, **tiling())
    assert bundle is not None
    other = Device(plain).run(bundle, program.inputs)
    for ours, theirs in zip(report.layers, other.layers, strict=True):
        if "accumulator" not in {s.stage for s in (*ours.saturation, *theirs.saturation)}:
            assert ours.saturation == theirs.saturation, ours.name
        assert ours.elements == theirs.elements, ours.name


def check_layers(
    report: RunReport, done: dict[str, Execution], fuse: bool, outliving: Collection[str]
) -> None:
    """Assert that output and saturation of every layer equal the oracle's.

    Without fusion every instruction is a layer. Buffers in ``outliving`` are read after the run.
    """
    in_order = list(done.values())
    by_name = {one.instruction.name: one for one in done.values()}
    if not fuse:
        assert list(report.layer_outputs) == list(done)
    covered = [name for layer in report.layers for name in (layer.fused or (layer.name,))]
    assert sorted(covered) == sorted(by_name)
    for layer in report.layers:
        parts = [by_name[name] for name in (layer.fused or (layer.name,))]
        output = report.layer_outputs[f"{layer.number:04d}:{layer.name}"]
        assert_same_bytes(output, parts[-1], layer)
        if layer.placement == "device":
            assert layer.macs == count_multiplications(parts[0]), layer.name
            rest = in_order[in_order.index(parts[-1]) + 1 :]
            check_overshoots(layer, parts, LaterExecutions(rest, outliving))


def assert_same_bytes(output: Array, done: Execution, layer: LayerReport) -> None:
    """Assert that all defined elements are equal bit for bit."""
    expected = done.result
    assert output.dtype == expected.dtype
    assert output.shape == expected.shape
    if output[done.defined].tobytes() != expected[done.defined].tobytes():
        where = f"{layer.op} {layer.name}"
        np.testing.assert_array_equal(output, expected, err_msg=where)
