"""Evaluation of a device run in real arithmetic, from its report to the parts of each error."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import attrs
import numpy as np

from nmpsim.analysis.shadow.compare import compare_run
from nmpsim.analysis.shadow.constants import (
    map_biases_to_filters,
    read_floats,
    read_quantized_constants,
)
from nmpsim.analysis.shadow.evaluate import RecordedResults, RunEvaluator, RunLayer
from nmpsim.analysis.shadow.matching import Matches, match_constants, match_floats_by_name
from nmpsim.arrays import Array, Arrays
from nmpsim.diagnostics import fail
from nmpsim.interpreter import dequantize
from nmpsim.lir.nodes import Module
from nmpsim.report.analyses import ShadowLayer, ShadowReport
from nmpsim.report.data import LayerReport, RunReport

Listener = Callable[[ShadowLayer], None]
IN_BUNDLE = "the bundle"
"""Source of float values that are not from a file."""
_CUT_LAST = ("input", "result", "activation")
"""Saturation stages that are explained by the output type's range."""


@attrs.frozen(eq=False)
class ShadowEvaluation:
    """Shadow evaluation of runs, with a program and the float values of its constants."""

    module: Module
    weights: str | None
    """Source of the float values: a file or the bundle; None without float values."""
    matches: Matches | None
    """Matched float values; None without float weights."""

    @classmethod
    def load(cls, module: Module, weights: Path | None) -> ShadowEvaluation:
        """Create an evaluation with float values from a file or from the module.

        Raises
        ------
        UserError
            FILE001, CONST001, PKG001 (see :func:`read_floats`), or CONST003 if no
            array of the file is the float form of one of the program's constants.
        """
        if weights is not None:
            return cls(module, str(weights), match_float_weights(module, weights))
        if not module.floats:
            return cls(module, None, None)
        return cls(
            module, IN_BUNDLE, match_floats_by_name(read_quantized_constants(module), module.floats)
        )

    @cached_property
    def evaluator(self) -> RunEvaluator:
        """Evaluator of the program's runs."""
        return RunEvaluator(self.module, self.matches.floats if self.matches else None)

    def evaluate(
        self,
        report: RunReport,
        stored: Arrays,
        user_inputs: Arrays,
        on_layer: Listener | None = None,
    ) -> ShadowReport:
        """Evaluate a run in real arithmetic; return the errors of each layer by source.

        Parameters
        ----------
        report
            The run, with ``layer_outputs`` of all its layers.
        stored
            Stored values of the program's inputs.
        user_inputs
            The same inputs as passed by the user, real numbers or integers.
        on_layer
            Called with each layer.

        Raises
        ------
        UserError
            INPUT002 for an infinite input.
        """
        run = make_recorded_run(self.module, report, stored, user_inputs)
        layers = []
        for layer in compare_run(self.evaluator, run):
            layers.append(layer)
            if on_layer is not None:
                on_layer(layer)
        return ShadowReport(
            float_weights=self.weights,
            constants=self.matches.found if self.matches else (),
            unmatched=self.matches.unmatched if self.matches else (),
            layers=tuple(layers),
        )


def match_float_weights(module: Module, path: Path) -> Matches:
    """Match a program's constants with the float arrays of a file.

    Raises
    ------
    UserError
        FILE001, CONST001 or PKG001 for the file, CONST003 if no array matches a constant.
    """
    constants = read_quantized_constants(module)
    arrays = read_floats(path, {real.size for real in constants.values()})
    matches = match_constants(constants, arrays, map_biases_to_filters(module))
    if constants and not matches.found:
        raise fail(
            "CONST003",
            "no array in the file matches a constant of the program",
            place=path,
            found=f"{len(arrays)} float arrays of fitting sizes",
            expected=f"an array such as {next(iter(constants))}",
            hint="Pass the weights from before quantization, named as in the LIR or the model.",
        )
    return matches


def make_recorded_run(
    module: Module, report: RunReport, stored: Arrays, user_inputs: Arrays
) -> RecordedResults:
    """Convert a report to a recorded run with layers identified by LIR instruction number."""
    numbers = {instruction.name: instruction.number for instruction in module.instructions}

    def run_layer(layer: LayerReport) -> RunLayer:
        parts = [numbers[name] for name in layer.fused] or [layer.number]
        return RunLayer(tuple(parts), _channels_cut_early(layer))

    return RecordedResults(
        inputs=stored,
        real_inputs=_real_inputs(module, stored, user_inputs),
        layers=[run_layer(layer) for layer in report.layers],
        outputs={int(k.split(":", 1)[0]): array for k, array in report.layer_outputs.items()},
    )


def _real_inputs(module: Module, stored: Arrays, given: Arrays) -> dict[str, Array]:
    """Return the inputs as real numbers, before quantization if they were quantized."""
    types = {weight.name: weight.type for weight in module.weights}
    reals: dict[str, Array] = {}
    for name, values in stored.items():
        before = np.asarray(given[name])
        quantized_here = types[name].quant is not None and before.dtype.kind == "f"
        reals[name] = before if quantized_here else dequantize(values, types[name])
        if not np.isfinite(reals[name]).all():
            raise fail(
                "INPUT002",
                f"input {name!r} contains values that are not finite",
                found=f"{np.count_nonzero(~np.isfinite(reals[name])):,} of {reals[name].size:,}"
                " values",
                expected="finite numbers",
            )
    return reals


def _channels_cut_early(layer: LayerReport) -> frozenset[int]:
    """Return the channels in which the device saturated values before the result."""
    return frozenset(
        channel
        for cut in layer.saturation
        if cut.stage not in _CUT_LAST
        for channel, _ in cut.channels
    )
