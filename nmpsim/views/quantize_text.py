"""A quantized program and comparisons of schemas and precisions, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from rich.console import Console

from nmpsim.diagnostics import format_count
from nmpsim.lir.names import map_display_names
from nmpsim.quantization import QuantizationAccuracy, QuantizedProgram, QuantizedResult, Settings
from nmpsim.report.fields import OR_NULL, Source
from nmpsim.report.json import to_json
from nmpsim.views.console import print_heading, print_line, print_table
from nmpsim.views.measures import make_columns
from nmpsim.views.text import format_elem


class SettingsDocument(TypedDict):
    """JSON form of the settings with which a program was quantized."""

    schema: str
    elem: str
    bias_elem: str
    per_channel: bool
    bias_scale: Annotated[
        Literal["result", "product"],
        Source(lambda settings: "result" if settings.bias_on_result else "product"),
    ]
    range_method: str
    percentile: float
    keep_float: Annotated[list[str], Source(lambda settings: sorted(settings.keep_float))]


class QuantizedResultDocument(TypedDict):
    """JSON form of an operation's result after quantization."""

    number: int
    name: str
    opcode: str
    elem: Annotated[str, Source("type.elem")]
    scale: Annotated[
        float | None, Source("type.quant.scale"), "null if it stays float, as the offset"
    ]
    offset: Annotated[int | None, Source("type.quant.offset")]
    reason: Annotated[str, "why it stays float; empty if it does not"]
    bias_saturated: Annotated[int, "elements of its bias that do not fit"]


class ProgramDocument(TypedDict):
    """JSON form of a quantized program: its settings and results."""

    settings: SettingsDocument
    results: list[QuantizedResultDocument]


class OutputErrorDocument(TypedDict):
    """JSON form of an output's error against the float program."""

    name: str
    sqnr_db: Annotated[float | None, OR_NULL, "null where there is no error or no signal"]
    top1_agreement: Annotated[float | None, "share of samples with the same best class"]


class LayerErrorDocument(TypedDict):
    """JSON form of a layer's error against the float program."""

    name: str
    opcode: str
    sqnr_db: Annotated[float | None, OR_NULL, "null where there is no error or no signal"]


class ComparisonDocument(TypedDict):
    """JSON form of quantization settings and their errors against the float program."""

    settings: SettingsDocument
    quantized: int
    staying_float: int
    outputs: list[OutputErrorDocument]
    layers: list[LayerErrorDocument]


class QuantizeDocument(TypedDict):
    """Output of `nmpsim quantize --format json`."""

    schema: Literal["nmpsim-quantize-2"]
    samples: int
    program: Annotated[ProgramDocument | None, "null if only comparisons were asked for"]
    comparisons: list[ComparisonDocument]


def print_quantization(
    program: QuantizedProgram | None,
    comparisons: Sequence[QuantizationAccuracy],
    samples: int,
    console: Console,
) -> None:
    """Print a quantized program, a comparison of settings, or both."""
    if program is not None:
        _print_program(program, console)
    if program is not None and comparisons:
        console.print()
    if comparisons:
        count = format_count(samples, "sample")
        print_line(console, f"errors against the float program over {count}", "bold")
        print_line(console, _weights_text(comparisons[0].settings))
        console.print()
        print_table(console, comparisons, *make_columns("quantize_comparison", layer=_worst_name))


def _print_program(program: QuantizedProgram, console: Console) -> None:
    """Print how many results are quantized, and why others stay float."""
    shown = map_display_names(result.name for result in program.results)
    staying = program.staying_float

    def name(result: QuantizedResult) -> str:
        return shown[result.name]

    saturated = [result for result in program.results if result.bias_saturated]
    count = len(program.results) - len(staying)
    results = format_count(len(program.results), "result")
    elem = format_elem(program.settings.elem)
    print_line(
        console, f"{count} of {results} quantized to {elem}, {program.settings.schema}", "bold"
    )
    print_line(console, _weights_text(program.settings))
    if saturated:
        bias_elem = format_elem(program.settings.bias_elem)
        print_heading(console, f"biases with elements that do not fit {bias_elem} on their scale")
        print_table(console, saturated, *make_columns("quantize_saturated", instruction=name))
        print_line(console, "hint: Pass --bias-precision int32, or --bias-scale product.")
    if staying:
        verb = "stays" if len(staying) == 1 else "stay"
        print_heading(console, f"{format_count(len(staying), 'result')} {verb} float")
        print_table(console, staying, *make_columns("quantize_float", instruction=name))


def _weights_text(settings: Settings) -> str:
    scales = "a scale for each channel" if settings.per_channel else "a scale for each tensor"
    where = "of the result" if settings.bias_on_result else "of input times weight"
    return f"weights: {scales}; biases: {format_elem(settings.bias_elem)}, with the scale {where}"


def _worst_name(comparison: QuantizationAccuracy) -> str:
    shown = map_display_names(layer.name for layer in comparison.layers)
    return shown[comparison.worst_layer.name]


def make_quantization_document(
    program: QuantizedProgram | None, comparisons: Sequence[QuantizationAccuracy], samples: int
) -> QuantizeDocument:
    """Return a quantized program and a comparison of settings as a JSON document."""
    data = {"samples": samples, "program": program, "comparisons": comparisons}
    return to_json(data, QuantizeDocument)
