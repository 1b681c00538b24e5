"""Baselines: recorded good runs as JSON files, and the comparison of later runs with them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs
import numpy as np

from nmpsim.arrays import Array, Shape
from nmpsim.atomic import is_special_file, write_file
from nmpsim.bundle.schema import make_strict_converter
from nmpsim.checking.results import LayerOutcome
from nmpsim.checking.run import CheckedRun, digest_output
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.experiments.identity import get_code_version
from nmpsim.input_files import read_text
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.report.data import LayerReport, OutputReport, Saturation
from nmpsim.report.fields import WrittenBefore
from nmpsim.report.json import format_json, to_json

SCHEMA: Final = "nmpsim-baseline-3"
OLD_SCHEMAS: Final[Mapping[str, tuple[str, ...]]] = {
    "nmpsim-baseline-2": ("elem",),
    "nmpsim-baseline-1": ("elem", "placement"),
}
"""Older version -> fields that its layers lack."""
MAX_VALUES = 4096
"""Number of elements up to which an output's values are stored; else only its digest is."""
MAX_BYTES = 64 << 20
UPDATE_HINT = "Run `nmpsim check --update-baseline`."
_OTHER_PROGRAM = "Name the baseline of this program."


@attrs.frozen
class BaselineLayer:
    """Layer of a baseline: recorded cycles, saturation and digests."""

    name: str
    op: str
    elem: Annotated[str | None, "of its output; null where an old nmpsim did not note it"]
    shape: Shape
    placement: Annotated[
        Literal["device", "host"] | None, "null where an old nmpsim did not note it"
    ]
    cycles: int = attrs.field(validator=attrs.validators.ge(0))
    saturated: Annotated[
        Mapping[str, int],
        "values that saturated and should not, by stage and side, as `result high`",
    ] = attrs.field(
        validator=attrs.validators.deep_mapping(
            attrs.validators.instance_of(str), attrs.validators.ge(0)
        )
    )
    constants: Annotated[str, "digest of its weights and other constants; empty if it has none"]
    rescale: Annotated[
        str, "digest of its multipliers, shifts, offsets and clip ranges; empty if it has none"
    ]
    output: Annotated[str, "digest of its output"]

    def matches_layer(self, layer: LayerReport) -> bool:
        """Return whether a run's layer has the same operation and output; names may differ."""
        same_elem = self.elem is None or self.elem == layer.elem
        return same_elem and (self.op, self.shape) == (layer.op, layer.shape)


@attrs.frozen
class BaselineOutput:
    """Output of a baseline: recorded type, shape, digest and values."""

    elem: str
    shape: Shape
    digest: str
    values: Annotated[tuple[Any, ...] | None, "in row-major order, as stored; null of a large one"]

    def get_array(self) -> Array | None:
        """Return the values as an array, or None if only the digest is stored."""
        if self.values is None:
            return None
        plain = [float(value) for value in self.values] if _is_float(self.elem) else self.values
        return np.asarray(plain, ELEM_DTYPES[self.elem]).reshape(self.shape)

    def matches(self, values: Array) -> bool:
        """Return whether values match the stored digest and, if present, the stored values.

        A manually edited value leaves the digest unchanged. The digest also distinguishes the sign
        of zero and the bits of a NaN.
        """
        kept = self.get_array()
        if kept is not None and not np.array_equal(kept, values, equal_nan=_is_float(self.elem)):
            return False
        return self.digest == digest_output(values)

    def has_wrong_digest(self, values: Array) -> bool:
        """Return whether ``values`` equal the stored values although the stored digest differs."""
        kept = self.get_array()
        if kept is None or kept.tobytes() != values.tobytes():
            return False
        return bool((kept == kept).all()) and self.digest != digest_output(values)


@attrs.frozen
class Baseline:
    """Baseline: outputs, costs and settings of a run with which later runs are compared."""

    nmpsim: Annotated[str, "version, and a digest of the sources"]
    program: str
    numerics: str
    bundle: Annotated[str, "digest of the bundle; another one is what checks are for"]
    inputs: Annotated[str, "digest of the inputs; others cannot be compared"]
    device: Mapping[str, Any]
    cycles: int = attrs.field(validator=attrs.validators.ge(0))
    memory_bytes: int = attrs.field(validator=attrs.validators.ge(0))
    outputs: Mapping[str, BaselineOutput]
    layers: tuple[BaselineLayer, ...]

    @property
    def schema(self) -> Annotated[Literal["nmpsim-baseline-3"], WrittenBefore("nmpsim")]:
        """Version of the JSON format of baselines."""
        return SCHEMA


def make_baseline(run: CheckedRun) -> Baseline:
    """Create a baseline from a completed run."""
    report = run.report
    return Baseline(
        nmpsim=get_code_version(),
        program=report.program,
        numerics=report.numerics,
        bundle=run.bundle,
        inputs=run.inputs,
        device=dict(report.device),
        cycles=report.cycles,
        memory_bytes=run.memory_bytes,
        outputs={output.name: _output(output) for output in report.output_reports},
        layers=tuple(
            BaselineLayer(
                layer.name,
                layer.op,
                layer.elem,
                layer.shape,
                layer.placement,
                layer.cycles,
                count_saturated(layer),
                run.constants[layer.index],
                run.rescale[layer.index],
                run.get_output_digest(layer),
            )
            for layer in report.layers
        ),
    )


def count_saturated(layer: LayerReport) -> dict[str, int]:
    """Count the saturated values of a layer by stage and side, without clipped values."""
    found: dict[str, int] = {}
    for one in layer.saturation:
        if not one.is_requested:
            found[_stage(one)] = found.get(_stage(one), 0) + one.count
    return found


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write a baseline to a file; raise UserError (FILE002) if the file cannot be written."""
    write_file(path, format_json(to_json(baseline)))


def read_baseline(path: Path) -> Baseline:
    """Read a baseline from a file; raise UserError (BASE001) for a missing or invalid file.

    Raises
    ------
    UserError
        BASE001 if the file is missing or is no baseline; FILE001 if it cannot be read.
    """
    place = Place(str(path))
    if is_special_file(path):  # opening a pipe would wait for its other end
        raise _unusable(place, "it is not a regular file")
    try:
        text = read_text(path, "baseline", MAX_BYTES, "BASE001", UPDATE_HINT)
    except UserError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise fail(
            "BASE001", "the baseline does not exist yet", place=place, hint=UPDATE_HINT
        ) from error
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unusable(place, f"it is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") not in (SCHEMA, *OLD_SCHEMAS):
        found = document.get("schema") if isinstance(document, dict) else None
        raise _unusable(place, f"its schema is {found!r:.80}, not {SCHEMA!r}")
    lacking, layers = OLD_SCHEMAS.get(document.pop("schema"), ()), document.get("layers")
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, dict):
            layer.update(dict.fromkeys(lacking))
    from cattrs import BaseValidationError, transform_error

    try:
        baseline = _converter().structure(document, Baseline)
        for output in baseline.outputs.values():
            output.get_array()
    except BaseValidationError as error:
        raise _unusable(place, transform_error(error, path="baseline")[0][:300]) from error
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise _unusable(place, f"it is damaged: {error}"[:300]) from error
    return baseline


def check_same_program(baseline: Baseline, run: CheckedRun, place: Place) -> None:
    """Raise UserError (BASE002) unless baseline and run have the same program and inputs.

    Programs are compared by inputs, outputs and layers; names of the program and its layers may
    differ.
    """
    report = run.report
    other_layers = _first_difference(baseline.layers, report.layers)
    if other_layers:
        raise make_baseline_error(
            place, "the program has other layers", *other_layers, _OTHER_PROGRAM
        )
    facts = (
        (
            "the program has other outputs",
            sorted((one.name, one.elem, one.values.shape) for one in report.output_reports),
            sorted((name, one.elem, one.shape) for name, one in baseline.outputs.items()),
            _OTHER_PROGRAM,
        ),
        (
            "the run has other inputs",
            f"inputs with the digest {run.inputs}",
            f"inputs with the digest {baseline.inputs}",
            "Pass the inputs that the baseline was written with.",
        ),
    )
    for what, found, expected, hint in facts:
        if found != expected:
            raise make_baseline_error(place, what, found, expected, hint)


def find_other_version(baseline: Baseline | None) -> str | None:
    """Return the nmpsim version of a baseline if it differs from the current version, or None."""
    return None if baseline is None or baseline.nmpsim == get_code_version() else baseline.nmpsim


def make_baseline_error(
    place: Place, what: str, found: object, expected: object, cure: str
) -> UserError:
    """Return an error (BASE002) for a run that cannot be compared with its baseline."""
    hint = f"{cure} If the change is intended, run `nmpsim check --update-baseline`."
    message = f"{what} than the baseline"
    return fail("BASE002", message, place=place, found=found, expected=expected, hint=hint)


def _first_difference(
    before: Sequence[BaselineLayer], now: Sequence[LayerReport]
) -> tuple[str, str] | None:
    """Return the first layer that differs, now and before; None if all are the same."""
    for then, layer in zip(before, now, strict=False):
        if not then.matches_layer(layer):
            index = f"layer {layer.index} "
            return index + _layer_text(layer), index + _layer_text(then)
    if len(before) != len(now):
        return f"{len(now)} layers", f"{len(before)} layers"
    return None


def _layer_text(layer: BaselineLayer | LayerReport) -> str:
    return f"{layer.name}: {layer.op}, {layer.elem or ''} {list(layer.shape)}"


def _stage(one: Saturation) -> str:
    return f"{one.stage} {one.side}"


def _output(output: OutputReport) -> BaselineOutput:
    kept = tuple(output.values.reshape(-1).tolist()) if output.values.size <= MAX_VALUES else None
    return BaselineOutput(
        output.elem, tuple(output.values.shape), digest_output(output.values), kept
    )


_converter = cache(make_strict_converter)


def _is_float(elem: str) -> bool:
    return ELEM_DTYPES[elem].kind == "f"


def _unusable(place: Place, why: str) -> UserError:
    return fail("BASE001", f"the baseline cannot be used: {why}", place=place, hint=UPDATE_HINT)


# The run that a case checks, compared with its baseline layer by layer.


@attrs.frozen(eq=False)
class ComparedRun:
    """Run of a checked program, with the baseline of an earlier run if there is one."""

    run: CheckedRun
    baseline: Baseline | None = None
    """Baseline of the same program, as :func:`~nmpsim.checking.baseline.check_same_program`
    requires."""

    @property
    def outputs(self) -> list[tuple[OutputReport, BaselineOutput]]:
        """Pairs of a run's output and the baseline's output, or [] without a baseline."""
        if self.baseline is None:
            return []
        before = self.baseline.outputs
        return [(output, before[output.name]) for output in self.run.report.output_reports]

    @cached_property
    def layers(self) -> tuple[LayerOutcome, ...]:
        """Layers of the run in program order, compared with the layers of the baseline."""
        run, layers = self.run, self.run.report.layers
        before = repeat(None, len(layers)) if self.baseline is None else self.baseline.layers
        return tuple(
            LayerOutcome(
                layer.index,
                layer.name,
                layer.display_name,
                layer.op,
                layer.operation,
                layer.line,
                layer.placement,
                None if then is None else then.placement,
                layer.cycles,
                None if then is None else then.cycles,
                layer.saturated,
                None if then is None else sum(then.saturated.values()),
                None if then is None else run.get_output_digest(layer) != then.output,
                None if then is None else run.constants[layer.index] != then.constants,
                None if then is None else run.rescale[layer.index] != then.rescale,
                tuple(one for one in layer.saturation if not one.is_requested),
            )
            for layer, then in zip(layers, before, strict=True)
        )
