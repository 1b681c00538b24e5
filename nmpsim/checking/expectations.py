"""Checks of outputs and layers against files and baselines, and of the predicted class."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import attrs
import numpy as np

from nmpsim.analysis.difference import OutputDifference, compare_outputs
from nmpsim.arrays import Array, Arrays
from nmpsim.bundle.metadata import is_same_shape
from nmpsim.checking.baseline import UPDATE_HINT, BaselineOutput, ComparedRun
from nmpsim.checking.results import CheckResult, FailedLayer, LayerOutcome, Status
from nmpsim.checking.suite import Expectations
from nmpsim.diagnostics import did_you_mean, fail
from nmpsim.experiments.samples import is_vector_shape
from nmpsim.experiments.worker import get_scores, rank_classes
from nmpsim.lir.layers import find_layer
from nmpsim.report.data import LayerReport, OutputReport, RunReport
from nmpsim.report.termination import TrapReport

_PATTERN = frozenset("*?[")
"""Characters that make a word a pattern."""


def _make_failure(name: str, message: str, culprits: Sequence[FailedLayer]) -> CheckResult:
    """Return a failed check whose message ends with the first layer concerned."""
    if culprits:
        first = culprits[0]
        line = f", line {first.line} of the LIR" if first.line else ""
        message += f" (first in layer {first.display_name}{line})"
    return CheckResult(name, "wrong", message, tuple(culprits))


def check_end(report: RunReport) -> list[CheckResult]:
    """Check how a run ended: with a trap, or with the exit status of a program.

    A run of a compiled network without a trap has no such check.
    """
    if report.trap is not None:
        return [make_trap_check(report.trap, report.layers)]
    if report.exit_status is None:
        return []
    status: Status = "wrong" if report.exit_status else "passed"
    return [CheckResult("exit", status, f"the exit status is {report.exit_status}")]


def make_trap_check(trap: TrapReport, layers: Sequence[LayerReport]) -> CheckResult:
    """Return the failed check of a run that ended with a trap."""
    layers = [layer for layer in layers if layer.name == trap.layer]
    culprits = [make_failed_layer(layer, "the run stopped in this layer") for layer in layers]
    return _make_failure("trap", f"the run stopped: {trap.kind}: {trap.message}", culprits)


def check_all_outputs(
    compared: ComparedRun, expected: Arrays | None, expect: Expectations
) -> CheckResult:
    """Check the outputs of a run against expected arrays, then against the baseline.

    If both pass, the message says what neither was compared with.

    Parameters
    ----------
    compared
        The run to check, which reached its end, and its baseline.
    expected
        Outputs by name; None to compare with the baseline only.
    expect
        Tolerances, and the layers that ``only`` chooses.

    Returns
    -------
    Check
        The check ``outputs``: the first one that failed, or that all passed.

    Raises
    ------
    UserError
        As :func:`check_outputs` and :func:`check_outputs_against_baseline`.
    """
    given = {} if expected is None else expected
    checks = [] if expected is None else [check_outputs(compared, expected, expect)]
    if compared.baseline is not None and not any(one.failed for one in checks):
        checks.append(check_outputs_against_baseline(compared, expect, given))
    found = checks[-1]
    left_out = list(_list_not_compared(compared, given, expect))
    if found.failed or not left_out:
        return found
    return attrs.evolve(found, message=f"{found.message}; not compared: {'; '.join(left_out)}")


def _list_not_compared(compared: ComparedRun, given: Arrays, expect: Expectations) -> Iterator[str]:
    """Yield what a passed answer was not compared with."""
    if compared.baseline is None:
        names = (output.name for output in compared.run.report.output_reports)
        yield from (f"output {name}" for name in names if name not in given)
        return
    for output, before in compared.outputs:
        if output.name in given and _needs_values(output, before, expect):
            yield f"output {output.name} with the baseline, which contains only a digest"
    if not _is_strict(expect):
        reason = "only" if expect.only else "ulp" if expect.ulp else "sqnr_db"
        layers = "other layers" if expect.only else "layers"
        yield f"{layers}, constants and rescale values with the baseline (expect.{reason})"
    elif not any(compared.run.constants):
        yield "constants (unknown without the LIR)"


def check_outputs(compared: ComparedRun, expected: Arrays, expect: Expectations) -> CheckResult:
    """Check the outputs of a run against expected arrays by name.

    Raises INPUT001 for an array that is no output, INPUT002 for one that cannot be compared.
    """
    outputs = {output.name: output for output in compared.run.report.output_reports}
    check_names(expected, outputs, "output")
    found = {name: compare_output(outputs[name], array) for name, array in expected.items()}
    return _check_differences(compared, found, expect)


def check_outputs_against_baseline(
    compared: ComparedRun, expect: Expectations, given: Collection[str] = ()
) -> CheckResult:
    """Check the outputs of a run against the outputs of the baseline.

    Without tolerances, the outputs of all layers, the constants and the rescale values must be
    equal too: a program with the same outputs may still be another program.

    Parameters
    ----------
    compared
        The run and its baseline; without a baseline nothing is compared.
    expect
        Tolerances.
    given
        Outputs that were compared with arrays; they may have no values in the baseline.

    Raises
    ------
    UserError
        BASE001 if a tolerance is given and the baseline has no values of an output.
    """
    changed: dict[str, OutputDifference | None] = {}
    for output, before in compared.outputs:
        if before.matches(output.values):
            continue
        if before.has_wrong_digest(output.values):
            raise fail(
                "BASE001",
                f"the baseline's digest of output {output.name} does not match its values",
                found=before.digest,
                expected="the digest of the values in the baseline",
                hint=UPDATE_HINT,
            )
        values = before.get_array()
        if not _needs_values(output, before, expect):
            changed[output.name] = None if values is None else compare_output(output, values)
        elif output.name not in given:
            raise fail(
                "BASE001",
                f"output {output.name!r} cannot be compared within a tolerance",
                found="a baseline with a digest only",
                expected="a baseline with the values of the output",
                hint="Pass the expected values with expect.outputs.",
            )
    found = _check_differences(compared, changed, expect)
    if found.failed or not _is_strict(expect):
        return found
    culprits = _find_first_changed(compared, "the outputs of the program are the same")
    message = "the output of a layer differs from the baseline"
    if not culprits:
        culprits = [
            make_failed_layer(layer, f"{numbers} not equal to the baseline")
            for layer in compared.layers
            if (numbers := _describe_other_numbers(layer))
        ]
        message = "the constants or rescale values of a layer differ from the baseline"
    return _make_failure("outputs", message, culprits) if culprits else found


def check_layers(compared: ComparedRun, expected: Arrays, expect: Expectations) -> CheckResult:
    """Check the outputs of layers against expected arrays with keys ``NNNN:name`` or ``name``."""
    run = compared.run
    named = {parse_layer_name(key): array for key, array in expected.items()}
    check_names(named, [layer.name for layer in run.layers], "layer")
    chosen = _select_layers(run.layers, expect, named)
    culprits = []
    for layer in chosen:
        output = run.layer_outputs[layer.index]
        if output is not None:
            as_output = OutputReport(layer.name, layer.elem, layer.scale, layer.offset, output)
            found = compare_output(as_output, named[layer.name])
            if not is_within_tolerance(found, expect):
                culprits.append(make_failed_layer(layer, describe_difference(found)))
    return _make_layers_check(len(chosen), culprits)


def check_layers_against_baseline(compared: ComparedRun, expect: Expectations) -> CheckResult:
    """Check the outputs of selected layers against the digests of the baseline."""
    chosen = _select_layers(compared.run.layers, expect)
    culprits = [
        make_failed_layer(layer, "the output of the layer differs from the baseline")
        for layer in chosen
        if compared.layers[layer.index].output_changed
    ]
    return _make_layers_check(len(chosen), culprits)


def check_top1(compared: ComparedRun, label: int) -> CheckResult:
    """Check that the class with the highest score is ``label``."""
    outputs = compared.run.report.output_reports
    scores = [output for output in outputs if is_vector_shape(output.values.shape)]
    if not scores:
        shapes = (f"{output.name} {list(output.values.shape)}" for output in outputs)
        raise fail(
            "DATA001",
            "the program is not a classifier",
            found=f"outputs {', '.join(shapes)}",
            expected="an output with one score for each class",
            hint="Leave out expect.class.",
        )
    values = get_scores(outputs)
    if label >= values.size:
        raise fail(
            "DATA001",
            f"the program has no class {label}",
            found=f"class {label}, counted from 0",
            expected=f"class 0 to {values.size - 1}",
        )
    best = int(rank_classes(values)[0])
    if best == label:
        return CheckResult("top1", "passed", f"class {best}")
    message = f"class {best}, expected {label}"
    return _make_failure("top1", message, _find_writer(compared, scores[0].name, message))


def compare_output(output: OutputReport, expected: Array) -> OutputDifference:
    """Compare an output with an expected array; dimensions of size 1 are ignored.

    Raises
    ------
    UserError
        INPUT002 if the array has another shape or type.
    """
    if is_same_shape(expected.shape, output.values.shape):
        expected = expected.reshape(output.values.shape)
    own = output.values.dtype
    with np.errstate(invalid="ignore", over="ignore"):
        stored = np.asarray(expected).astype(own)
    same = np.array_equal(stored, expected, equal_nan=own.kind == "f")
    if expected.shape != output.values.shape or not (
        own.kind == expected.dtype.kind == "f" or same
    ):
        raise fail(
            "INPUT002",
            f"the expected array does not fit output {output.name!r}",
            found=f"{expected.dtype} of shape {list(expected.shape)}",
            expected=f"{own} of shape {list(output.values.shape)}, as the device stores it",
        )
    return compare_outputs(output.values, stored, output.elem, output.scale, output.offset)


def is_within_tolerance(difference: OutputDifference, expect: Expectations) -> bool:
    """Return whether a difference is within the tolerances, or is zero if no tolerance is set."""
    near = True
    if expect.ulp or expect.sqnr_db is None:
        near = difference.worst_ulp <= expect.ulp
    if expect.sqnr_db is not None:
        near = near and (difference.equal or (difference.sqnr_db or 0) >= expect.sqnr_db)
    return near


def describe_difference(difference: OutputDifference | None) -> str:
    """Describe a difference by the number of differing elements, and the first and worst one.

    None is a difference from the baseline of unknown size.
    """
    if difference is None:
        return _format_error(difference)
    first, worst = difference.first, difference.worst
    if first is None or worst is None:
        return "equal"
    text = (
        f"{difference.differing:,} of {difference.elements:,} elements differ,"
        f" first {list(first.at)}: {first.actual!r}, expected {first.expected!r}"
    )
    if worst.at != first.at:
        text += f"; worst {list(worst.at)}: {worst.actual!r}, expected {worst.expected!r}"
    return f"{text}; {_format_error(difference)}"


def make_failed_layer(layer: LayerReport | LayerOutcome, message: str) -> FailedLayer:
    """Create a failed layer from a layer of a report and a message."""
    return FailedLayer(layer.index, layer.name, layer.display_name, layer.line, message)


def parse_layer_name(key: str) -> str:
    """Parse a key ``NNNN:name`` of ``--save-layers`` and return the layer name."""
    number, colon, name = key.partition(":")
    return name if colon and number.isdigit() else key


def check_names(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise UserError for an unknown name (INPUT001) or for no name at all (SUITE002)."""
    names = list(known)
    for name in given:
        if name not in names:
            raise fail(
                "INPUT001",
                f"the program has no {what} {name!r}",
                found=repr(name),
                expected=f"a name such as {', '.join(names[:8])}",
                hint=did_you_mean(name, names),
            )
    if not list(given):
        raise fail(
            "SUITE002",
            "the file of expected values contains no array",
            found="0 arrays",
            expected=f"an array for at least one {what}, such as {names[0]}"
            if names
            else f"an array for at least one {what}",
            hint="Write the file with `nmpsim run --save-outputs`.",
        )


def _check_differences(
    compared: ComparedRun, found: Mapping[str, OutputDifference | None], expect: Expectations
) -> CheckResult:
    """Check the differences of outputs by name; None for a difference of unknown size."""
    wrong = {
        name: one
        for name, one in found.items()
        if one is None or not is_within_tolerance(one, expect)
    }
    if not wrong:
        return CheckResult("outputs", "passed", "as expected")
    texts = [f"output {name}: {describe_difference(one)}" for name, one in wrong.items()]
    then = "; ".join(f"output {name} is {_format_error(one)}" for name, one in wrong.items())
    culprits = _find_first_changed(compared, then)
    culprits = culprits or _find_writer(compared, next(iter(wrong)), then)
    return _make_failure("outputs", "; ".join(texts), culprits)


def _format_error(found: OutputDifference | None) -> str:
    if found is None:
        return "different from the baseline"
    return f"off by up to {found.worst_ulp:,} ulp, SQNR {found.sqnr_db:.1f} dB"


def _needs_values(output: OutputReport, before: BaselineOutput, expect: Expectations) -> bool:
    """Return whether an output changed and a tolerance cannot be applied for want of values."""
    has_tolerance = expect.ulp or expect.sqnr_db is not None
    return bool(has_tolerance) and before.values is None and not before.matches(output.values)


def _is_strict(expect: Expectations) -> bool:
    return not expect.ulp and expect.sqnr_db is None and not expect.only


def _make_layers_check(count: int, culprits: Sequence[FailedLayer]) -> CheckResult:
    if not culprits:
        return CheckResult("layers", "passed", f"{count} as expected")
    message = f"{len(culprits)} of {count} layers differ; {culprits[0].message}"
    return _make_failure("layers", message, culprits)


def _find_first_changed(compared: ComparedRun, then: str) -> list[FailedLayer]:
    """Return the first layer whose output is not the baseline's, with the consequence."""
    changed = next((layer for layer in compared.layers if layer.output_changed), None)
    if changed is None:
        return []
    own = _describe_other_numbers(changed)
    why = f"; {own} also different" if own else ""
    message = f"the first layer whose output differs from the baseline{why}"
    return [make_failed_layer(changed, f"{message}; {then}")]


def _describe_other_numbers(layer: LayerOutcome) -> str:
    """Return which numbers of a layer are not the baseline's, as ``its constants are``."""
    kinds = {"constants": layer.constants_changed, "rescale values": layer.rescale_changed}
    other = " and ".join(name for name, has_changed in kinds.items() if has_changed)
    return f"its {other} are" if other else ""


def _find_writer(compared: ComparedRun, output: str, message: str) -> list[FailedLayer]:
    index = compared.run.output_layers.get(output)
    return [] if index is None else [make_failed_layer(compared.layers[index], message)]


def _select_layers(
    layers: Sequence[LayerReport], expect: Expectations, names: Collection[str] | None = None
) -> list[LayerReport]:
    """Return the layers that ``only`` selects, by pattern or by name, and that ``names`` has.

    Raises UserError (SUITE002) if there are none.
    """
    chosen: set[str] = set()
    for word in expect.only:
        if _PATTERN.intersection(word):
            chosen.update(
                one.name
                for one in layers
                if any(fnmatch.fnmatchcase(name, word) for name in (one.name, one.display_name))
            )
        else:
            chosen.add(find_layer(layers, word).name)
    found = [one for one in layers if not expect.only or one.name in chosen]
    found = [one for one in found if names is None or one.name in names]
    if not found:
        raise fail(
            "SUITE002",
            "no layer was compared",
            found=f"expect.only = {list(expect.only)}",
            hint="List the names of layers with `nmpsim inspect`.",
        )
    return found
