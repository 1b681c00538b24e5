"""Whole small programs: operands as they were, chains, parts of buffers, what is compared."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from shadow_samples import parse_module

from nmpsim.analysis.shadow import RecordedResults, RunEvaluator, RunLayer, compare_run
from nmpsim.analysis.shadow.recording import LayerReplay
from nmpsim.lir.nodes import Module
from nmpsim.report.analyses import ShadowLayer

Array = np.ndarray[Any, Any]


def make_results(module: Module, inputs: dict[str, Array], **outputs: Array) -> RecordedResults:
    """Return a run with one layer for each instruction that has an output here (``n3``)."""
    numbers = [int(name[1:]) for name in outputs]
    types = {weight.name: weight.type for weight in module.weights}
    reals = {
        name: q.scale * (values.astype(np.float64) - q.offset)
        if (q := types[name].quant)
        else values
        for name, values in inputs.items()
    }
    layers = [RunLayer((number,)) for number in numbers]
    return RecordedResults(inputs, reals, layers, dict(zip(numbers, outputs.values(), strict=True)))


def int8(*values: int) -> Array:
    return np.array([values], np.int8)


IN_PLACE = parse_module(
    """
    %x = WeightVar i8[S:1.000000000 O:0][-128.000,127.000]<1 x 3> mutable
    %y = WeightVar i8[S:1.000000000 O:0][-128.000,127.000]<1 x 3> mutable
    """,
    """
    %a = allocactivation { Ty: i8[S:1.000000000 O:0][-128.000,127.000]<1 x 3>}
    %copy = copy @out %a, @in %x
    %half = rescalequantized @out %a, @in %a
    %sum = elementadd @out %y, @in %a, @in %x
    %free = deallocactivation @out %a
    """,
)


def test_operands_have_the_values_of_their_time() -> None:
    x = int8(2, 4, 100)
    run = make_results(IN_PLACE, {"x": x}, n1=x, n2=int8(3, 4, 100), n3=int8(5, 8, 127))
    layers = list(LayerReplay(IN_PLACE).replay([(1,), (2,), (3,)], {"x": x}, run.outputs))
    held = [[o.stored.tolist()[0] for o in layer.steps[0].operands[1:]] for layer in layers]
    assert held == [[[2, 4, 100]], [[2, 4, 100]], [[3, 4, 100], [2, 4, 100]]]
    copy, half, total = compare_run(RunEvaluator(IN_PLACE, {}), run)
    assert copy.rounding and copy.rounding.sqnr_db == math.inf
    assert half.rounding and half.rounding.max_error_ulp == 1.0
    assert total.split and total.split.inherited
    # 3 + 2 where the float network has 2 + 2; 200 is cut to 127.
    assert total.split.inherited.max_error_ulp == 1.0
    assert total.split.saturation.max_error_ulp == 73.0
    assert total.split.rescale.max_error_ulp == 0.0


def test_a_stopped_run_is_compared_up_to_its_stop() -> None:
    x = int8(1, 2, 3)
    run = make_results(IN_PLACE, {"x": x}, n1=x)
    longer = RecordedResults(
        run.inputs, run.real_inputs, [*run.layers, RunLayer((2,))], run.outputs
    )
    assert [layer.number for layer in compare_run(RunEvaluator(IN_PLACE), longer)] == [1]


def test_a_fused_layer_is_evaluated_as_one() -> None:
    module = parse_module(
        """
        %w = WeightVar i8[S:0.500000000 O:0][-64.000,63.500]<2 x 2> const
        %b = WeightVar i8[S:0.500000000 O:0][-64.000,63.500]<2> const
        %x = WeightVar i8[S:1.000000000 O:0][-128.000,127.000]<1 x 2> mutable
        %y = WeightVar i8[S:1.000000000 O:0][-128.000,127.000]<1 x 2> mutable
        """,
        """
        %fc = fullyconnected @out %y, @in %x, @in %w, @in %b
        %relu = relu @out %y, @in %y
        """,
        w=np.array([[4, -4], [0, 0]], np.int8),
        b=np.array([1, 0], np.int8),
    )
    x = int8(10, 0)
    run = RecordedResults({"x": x}, {"x": x.astype(float)}, [RunLayer((0, 1))], {1: int8(21, 0)})
    floats = {"w": np.array([[2.0, -2.0], [0, 0]]), "b": np.array([0.75, 0.0])}
    (layer,) = compare_run(RunEvaluator(module, floats), run)
    assert (layer.index, layer.number, layer.name) == (0, 1, "relu")
    assert layer.split and layer.split.bias and layer.split.weights and layer.bias
    assert layer.split.bias.max_error_ulp == layer.bias.max_error_ulp == 0.25
    assert layer.split.weights.max_error_ulp == 0.0
    assert layer.split.rescale.max_error_ulp == 0.5  # 20.5 became 21; -20 is the ReLU's
    assert layer.accumulated and layer.accumulated.max_error_ulp == 0.25


def test_a_buffer_is_compared_after_its_last_part() -> None:
    type_ = "i8[S:1.000000000 O:0][-128.000,127.000]"
    module = parse_module(
        f"""
        %x = WeightVar {type_}<1 x 2> mutable
        %y = WeightVar {type_}<1 x 4> mutable
        """,
        """
        %touch = touch @out %y
        %one = inserttensor @inout %y, @in %x { Offsets: [0, 0], Count: 1, Axis: 1}
        %two = inserttensor @inout %y, @in %x { Offsets: [0, 2], Count: 1, Axis: 1}
        """,
    )
    x = int8(5, 6)
    run = make_results(module, {"x": x}, n1=int8(5, 6, 99, 99), n2=int8(5, 6, 5, 6))
    one, two = compare_run(RunEvaluator(module, {}), run)
    assert one.not_compared == "parts of its output are not written yet"
    assert one.accumulated is one.rounding is one.split is None
    assert two.not_compared == ""
    assert two.accumulated and two.accumulated.sqnr_db == math.inf


def test_truth_values_are_not_compared() -> None:
    type_ = "i8[S:1.000000000 O:0][-128.000,127.000]<1 x 2>"
    module = parse_module(
        f"%x = WeightVar {type_} mutable\n%y = WeightVar bool<1 x 2> mutable",
        "%le = elementcmplte @out %y, @in %x, @in %x",
    )
    (layer,) = compare_run(
        RunEvaluator(module), make_results(module, {"x": int8(1, 2)}, n0=np.array([[True, True]]))
    )
    assert layer == ShadowLayer(0, 0, "le", "its output is of bool, not of real numbers")


def test_intermediate_saturation_is_attributed() -> None:
    x = int8(1, 1, 1)
    run = make_results(IN_PLACE, {"x": x}, n1=int8(1, 50, 50))
    told = RecordedResults(
        run.inputs, run.real_inputs, [RunLayer((1,), frozenset({1}))], run.outputs
    )
    (layer,) = compare_run(RunEvaluator(IN_PLACE), told)
    assert layer.split
    assert layer.split.saturation.mean_error_ulp == pytest.approx(49 / 3)
    assert layer.split.rescale.mean_error_ulp == pytest.approx(49 / 3)


def test_a_view_of_a_constant_uses_its_part() -> None:
    type_ = "i8[S:1.000000000 O:0][-128.000,127.000]"
    module = parse_module(
        f"""
        %w = WeightVar {type_}<2 x 2> const
        %x = WeightVar {type_}<1 x 2> mutable
        %y = WeightVar {type_}<1 x 2> mutable
        """,
        f"""
        %row = tensorview @in %w {{ Ty: {type_}<1 x 2>, Offsets: [1, 0]}}
        %mul = elementmul @out %y, @in %x, @in %row
        """,
        w=np.array([[9, 9], [2, 3]], np.int8),
    )
    run = make_results(module, {"x": int8(1, 1)}, n1=int8(2, 3))
    (layer,) = compare_run(RunEvaluator(module, {"w": np.array([[9.0, 9.0], [2.25, 3.0]])}), run)
    assert layer.split and layer.split.weights
    assert layer.split.weights.max_error_ulp == 0.25
    assert layer.bias is None
