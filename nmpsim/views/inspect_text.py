"""Contents of a bundle as text and as JSON: inputs, outputs, layers, sizes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from rich.console import Console

from nmpsim.bundle import Bundle, Layer, Tensor
from nmpsim.bundle.layout import CONSTANTS, DESCRIPTORS, TEXT
from nmpsim.bundle.metadata import SCHEMA as BUNDLE_SCHEMA
from nmpsim.bundle.metadata import OperatorMapping
from nmpsim.config import default_device, format_setting_name
from nmpsim.escape import escape_line
from nmpsim.report.fields import Source
from nmpsim.views.console import print_facts, print_heading, print_line, print_table
from nmpsim.views.element_types import (
    KINDS,
    ElementTypeUsage,
    compute_element_type_usage,
    is_unquantized,
)
from nmpsim.views.measures import (
    format_tensor_type,
    make_columns,
    make_placement_cell,
)
from nmpsim.views.text import format_bytes, format_elem, format_percent

_TENSOR = re.compile(r"^%\S+ is ")
NOTHING_QUANTIZED = "NOTHING IS QUANTIZED: no layer uses Int8 or Int16"
GLOW_INT16 = (
    "Int16 layers of glow-int follow glow-float:"
    " only rescalequantized of Glow's compiled kernels supports Int16"
)


def _placement(bundle: Bundle) -> Mapping[str, int]:
    counts = Counter(layer.placement for layer in bundle.metadata.layers)
    return {"device": counts["device"], "host": counts["host"]}


def _sizes(bundle: Bundle) -> Mapping[str, int]:
    nbytes = {name: end - start for name, (start, end) in bundle.sections.items()}
    return {
        "constants": nbytes.get(CONSTANTS, 0),
        "descriptors": nbytes.get(DESCRIPTORS, 0),
        "code": sum(high - low for low, high in bundle.text) or nbytes.get(TEXT, 0),
        "activations": bundle.rw_bytes,
    }


def _layers_of(operator: OperatorMapping, bundle: Bundle) -> list[Layer]:
    names = set(operator.layers)
    return [
        layer for layer in bundle.metadata.layers if names.intersection((layer.name, *layer.fused))
    ]


def _operations(bundle: Bundle) -> list[Any]:
    return [
        {"node": operator.node, "layers": [one.index for one in _layers_of(operator, bundle)],
         "why": operator.why}
        for operator in bundle.metadata.operators
    ]  # fmt: skip


class BundleTensorDocument(TypedDict):
    """JSON form of a tensor of a bundle."""

    name: str
    elem: str
    shape: list[int]
    scale: Annotated[float | None, "null if the type is not quantized"]
    offset: Annotated[int | None, "zero point; null if the type is not quantized"]


class BundleLayerDocument(TypedDict):
    """JSON form of a layer of a bundle."""

    index: Annotated[int, "position in the list, from 0"]
    name: Annotated[str, "full name: that of the LIR instruction"]
    display_name: Annotated[str, "short name among the layers"]
    number: Annotated[int, "number of the LIR instruction whose output it is"]
    line: Annotated[int, "line of that instruction in the LIR text; 0 if unknown"]
    op: Annotated[str, "opcode of the LIR"]
    operation: Annotated[str, "common name of the operation, such as `conv1x1`"]
    placement: Literal["device", "host"]
    reason: Annotated[str, "why the host executes it; empty on the device"]
    numerics: Annotated[str, "numerics profile; empty where none applies"]
    fused: Annotated[list[str], "names of the LIR instructions that became this layer"]
    macs: int
    output: BundleTensorDocument


class OperationDocument(TypedDict):
    """JSON form of a model's operation and the layers that compute it."""

    node: Annotated[str, "number, kind, and the tensor that it makes"]
    layers: Annotated[list[int], "indices of the layers that compute it"]
    why: Annotated[str, "why there are none; empty if there are some"]


class PlacementDocument(TypedDict):
    """JSON form of the numbers of layers on the device and on the host."""

    device: int
    host: int


class SizesDocument(TypedDict):
    """JSON form of the sizes in bytes of a bundle's constants, code and other contents."""

    constants: int
    descriptors: int
    code: int
    activations: int


class InspectDocument(TypedDict):
    """Output of `nmpsim inspect --format json`."""

    schema: Literal["nmpsim-inspect-1"]
    format: Annotated[str, Source(lambda _: BUNDLE_SCHEMA), "version of the bundle's metadata"]
    path: str
    digest: str
    program: Annotated[str, Source("metadata.program")]
    source: Annotated[str, Source("metadata.source")]
    numerics: Annotated[str, Source("metadata.numerics_label")]
    inputs: Annotated[list[BundleTensorDocument], Source("metadata.user_inputs")]
    outputs: Annotated[list[BundleTensorDocument], Source("metadata.user_outputs")]
    states: Annotated[
        list[BundleTensorDocument], Source("metadata.user_states"), "kept from run to run"
    ]
    operations: Annotated[
        list[OperationDocument],
        Source(_operations),
        "of the model's file; none if it was LIR",
    ]
    layers: Annotated[list[BundleLayerDocument], Source("metadata.layers")]
    placement: Annotated[PlacementDocument, Source(_placement)]
    elements: Annotated[
        list[ElementTypeUsage],
        Source(lambda bundle: compute_element_type_usage(bundle.metadata)),
        "how much is Int8, Int16 and float",
    ]
    nothing_quantized: Annotated[bool, Source(lambda bundle: is_unquantized(bundle.metadata))]
    bytes: Annotated[SizesDocument, Source(_sizes)]
    device: Annotated[
        dict[str, Any],
        Source("metadata.device"),
        "settings that the bundle was compiled for",
    ]


def print_bundle(bundle: Bundle, console: Console) -> None:
    """Print the contents of a bundle: inputs, outputs, layers and sizes."""
    metadata = bundle.metadata
    print_line(console, f"{metadata.program} from {metadata.source}", "bold")
    facts = [
        ("layers", _counts(bundle)),
        ("numerics", metadata.numerics_label),
        ("format", BUNDLE_SCHEMA),
        ("digest", bundle.digest),
    ]
    print_facts(console, facts)
    _print_elements(bundle, console)
    _print_tensors("inputs", metadata.user_inputs, console)
    _print_tensors("outputs", metadata.user_outputs, console)
    if metadata.states:
        _print_tensors("state", metadata.user_states, console)
    if metadata.operators:
        print_heading(console, "operations of the model")
        rows = [(operator, _layers_of(operator, bundle)) for operator in bundle.metadata.operators]
        print_table(
            console,
            rows,
            *make_columns(
                "inspect_operators",
                operation=lambda row: _format_operator(row[0]),
                layers=lambda row: _named(row[1]) or row[0].why,
                placement=lambda row: make_placement_cell(
                    " and ".join(sorted({one.placement for one in row[1]}))
                ),
            ),
        )
    if metadata.layers:
        print_heading(console, "layers")
        print_table(
            console,
            metadata.layers,
            *make_columns(
                "inspect_layers",
                numerics=lambda layer: layer.numerics or None,
                output=lambda layer: format_tensor_type(layer.output),
                fused=lambda layer: len(layer.fused) or None,
            ),
        )
        renamed = [layer for layer in metadata.layers if layer.name != layer.display_name]
        if renamed:
            print_heading(console, "full names of layers")
        for layer in renamed:
            print_line(console, f"  {layer.index} {layer.display_name}: {layer.name}")
        _print_reasons(metadata.layers, console)
    print_heading(console, "sizes")
    print_facts(console, [(label, format_bytes(size)) for label, size in _sizes(bundle).items()])
    print_heading(console, "compiled for")
    for text in _device_lines(metadata.device):
        print_line(console, f"  {text}")


def _counts(bundle: Bundle) -> str:
    placement = _placement(bundle)
    elems = Counter(format_elem(layer.output.elem) for layer in bundle.metadata.layers)
    kinds = ", ".join(f"{count} {elem}" for elem, count in elems.most_common())
    counts = f"{placement['device']} on the device, {placement['host']} on the host"
    return f"{counts}; outputs: {kinds}" if kinds else counts


def _print_elements(bundle: Bundle, console: Console) -> None:
    """Print the shares of Int8, Int16 and float, with a warning if nothing is quantized."""
    found = compute_element_type_usage(bundle.metadata)
    if not found:
        return
    print_heading(console, "elements")
    total = sum(share.macs for share in found)
    print_table(
        console,
        found,
        *make_columns(
            "inspect_elements",
            kind=lambda one: KINDS[one.kind],
            share=lambda one: format_percent(one.macs, total),
        ),
    )
    floats = sum(share.macs for share in found if share.kind == "float")
    if is_unquantized(bundle.metadata):
        print_line(console, NOTHING_QUANTIZED, "bold red")
    elif floats:
        print_line(
            console, f"{format_percent(floats, total)} % of the MACs are float", "bold yellow"
        )
    wide = any(
        layer.numerics == "glow-float" and layer.output.elem == "i16"
        for layer in bundle.metadata.layers
    )
    if bundle.metadata.numerics == "glow-int" and wide:
        print_line(console, GLOW_INT16)


def _print_tensors(title: str, tensors: Sequence[Tensor], console: Console) -> None:
    print_heading(console, title)
    for tensor in tensors:
        print_line(console, f"  {tensor.name}: {_tensor_text(tensor)}")
    if not tensors:
        print_line(console, "  none")


def _tensor_text(tensor: Tensor) -> str:
    text = format_tensor_type(tensor)
    if tensor.scale is None:
        return text
    return f"{text}, scale {tensor.scale!r}, offset {tensor.offset}"


def _named(layers: Sequence[Layer]) -> str:
    return ", ".join(f"{layer.index} {layer.display_name}" for layer in layers)


def _format_operator(operator: OperatorMapping) -> str:
    """Return number and kind of an operation, and its tensor if no layer is named after it."""
    return escape_line(" ".join(operator.node.split(" ")[:2]) if operator.layers else operator.node)


def _print_reasons(layers: Sequence[Layer], console: Console) -> None:
    """Print why layers run on the host, one line per reason, whatever the tensor."""
    by_reason: dict[str, list[Layer]] = {}
    for layer in layers:
        if layer.placement == "host":
            reason = _TENSOR.sub("an operand is ", layer.reason) or "no reason given"
            by_reason.setdefault(reason, []).append(layer)
    if by_reason:
        print_heading(console, "on the host, because")
    for reason, concerned in by_reason.items():
        print_line(console, f"  {reason}: {_named(concerned)}")


def _device_lines(settings: Mapping[str, Any]) -> list[str]:
    if not settings:
        return ["no device is recorded"]
    lines = [f"{settings.get('name', '?')}, cores: {settings.get('cores_count', '?')}"]
    usual = default_device().settings()
    other = [
        f"{format_setting_name(name)} = {value}"
        for name, value in settings.items()
        if name != "name" and usual.get(name) != value
    ]
    if other:
        lines.append(f"differs from the default device: {', '.join(other)}")
    else:
        lines.append("all settings as in the default device (see `nmpsim device`)")
    return lines
