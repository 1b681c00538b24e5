"""Test the tiling search: correct in every mode, never slower than the rule, few cores."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from compiled_runs import compile_program
from hypothesis import given
from hypothesis import strategies as st
from lir_draft import Draft, int8
from lir_oracle import run_module
from program_writer import Program, Size, sizes
from random_arithmetic import convolution
from random_programs import chains, single_operations
from small_programs import program
from tiers import examples
from tiling_runs import FEW, compile_with_tiling, digits

from nmpsim.compiler.driver import compile_module
from nmpsim.compiler.tiling.search import TILINGS
from nmpsim.config import default_device
from nmpsim.core.device import Device
from nmpsim.diagnostics import UserError


def cycles(program: Program, tiling: str, **changes: int) -> int:
    config = attrs.evolve(default_device(), **changes)
    bundle, _ = compile_with_tiling(program, config, tiling)
    return Device(config).run(bundle, program.inputs).cycles


@examples(25)
@given(
    st.one_of(chains(), single_operations((convolution,))), sizes(), st.sampled_from(TILINGS[1:])
)
def test_other_modes_give_right_outputs(program: Program, size: Size, tiling: str) -> None:
    if compile_program(program, size.config, True) is None:
        return
    _, final = run_module(program.module, program.inputs, program.numerics, program.by_layer)
    bundle, _ = compile_with_tiling(program, size.config, tiling)
    report = Device(size.config).run(bundle, program.inputs)
    for name, values in report.outputs.items():
        np.testing.assert_array_equal(values, final[name], err_msg=name)


def test_modes_are_ordered_by_cycles() -> None:
    """On the digits network each is better than the next."""
    layer, blind, simple, chain = (cycles(digits(), tiling) for tiling in TILINGS)
    assert chain < layer < blind < simple


@pytest.mark.parametrize("changes", [{}, *FEW], ids=str)
def test_the_search_is_no_worse_than_the_rule(changes: dict[str, int]) -> None:
    assert cycles(digits(), "layer", **changes) <= cycles(digits(), "simple", **changes)


@pytest.mark.parametrize("changes", [{}, *FEW], ids=str)
def test_burst_is_no_worse_than_bytes(changes: dict[str, int]) -> None:
    config = attrs.evolve(default_device(), **changes)
    _, sighted = compile_with_tiling(digits(), config, "layer")
    _, blind = compile_with_tiling(digits(), config, "bytes")
    for one, other in zip(sighted, blind, strict=True):
        assert one.chosen.estimate.cycles <= other.chosen.estimate.cycles, one.layer
        assert {t.label for t in one.trials} == {t.label for t in other.trials}


def one_convolution(size: int, inputs: int, outputs: int) -> Program:
    """Build a program with one 3x3 convolution of a square image."""
    draft = Draft()
    source = draft.input(int8((1, size, size, inputs), 0.07))
    weights = np.ones((outputs, 3, 3, inputs), np.int8)
    draft.emit(
        "convolution",
        draft.output(int8((1, size, size, outputs), 1.0)),
        source,
        draft.constant(weights, "i8", 0.01),
        draft.constant(np.zeros(outputs, np.int32), "i32", 0.0007),
        Kernels=(3, 3),
        Strides=(1, 1),
        Pads=(1, 1, 1, 1),
        Dilation=(1, 1),
        Group=1,
        Layout="NHWC",
        FusedActivation="NONE",
        FusedActivationArgs=(),
    )
    return program(draft)


def test_large_layers_are_searched() -> None:
    """The rule takes four times as long: it gives each core rows that do not fit."""
    convolution = one_convolution(224, 64, 64)
    _, (layer,) = compile_with_tiling(convolution, default_device(), "layer")
    _, (by_rule,) = compile_with_tiling(convolution, default_device(), "simple")
    assert len(layer.trials) > 20
    assert 2 * layer.chosen.estimate.cycles < by_rule.chosen.estimate.cycles


@pytest.mark.parametrize(
    ("shape", "best"),
    [
        ((14, 32, 64), 10_946),
        ((16, 16, 32), 4_614),
        ((12, 48, 24), 8_210),
        ((56, 64, 64), 124_579),
        # On 24 cores of 32, which few grids have that would be fast if everything overlapped.
        ((112, 256, 256), 5_183_149),
    ],
    ids=str,
)
def test_the_best_known_tiling_is_found(shape: tuple[int, int, int], best: int) -> None:
    """Within 3 % of the best that anybody found on the default device, whatever was tried."""
    _, (layer,) = compile_with_tiling(one_convolution(*shape), default_device(), "layer")
    assert layer.chosen.estimate.cycles <= 1.03 * best


def test_more_cores_are_not_slower() -> None:
    """A tiny network on 1 to 64 cores: those that would not help get no work."""
    taken = [cycles(digits(), "layer", cores_count=count) for count in (1, 2, 4, 8, 16, 32, 64)]
    best = taken[0]
    for one in taken[1:]:
        assert one <= 1.01 * best
        best = min(best, one)
    _, layers = compile_with_tiling(digits(), default_device(), "layer")
    assert max(layer.chosen.estimate.cores for layer in layers) < 32


def test_the_fastest_candidate_is_selected() -> None:
    _, layers = compile_with_tiling(digits(), default_device(), "layer")
    assert [layer.layer.opcode for layer in layers][:2] == ["convolution", "maxpool"]
    for layer in layers:
        times = [trial.estimate.cycles for trial in layer.trials]
        assert times == sorted(times)
        assert layer.chosen.label == layer.trials[0].label
        assert layer.reason
        assert not layer.like
    _, layers = compile_with_tiling(digits(), default_device(), "simple")
    assert {layer.reason for layer in layers} == {"the only tiling of the rule"}


def test_the_search_is_deterministic() -> None:
    module = digits().module
    for tiling in TILINGS:
        files = [compile_module(module, default_device(), tiling=tiling) for _ in range(2)]
        assert len(set(map(bytes, files))) == 1


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UserError, match="unknown value of tiling") as caught:
        compile_module(digits().module, default_device(), tiling="fast")
    (finding,) = caught.value.diagnostics
    assert (finding.code, finding.expected) == ("COMP001", "layer, bytes, simple or chain")
