"""Classes of rules that explain the same dumps of a program, for each kind of layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from nmpsim.analysis.identify.dumps import EXPECTED_PREFIX, Dumps
from nmpsim.analysis.identify.faults import LayerFault, find_fault
from nmpsim.analysis.identify.layer_reading import find_transpose_sources, read_layers
from nmpsim.analysis.identify.layers import AnyLayer
from nmpsim.analysis.identify.rules import IN_SUM
from nmpsim.analysis.identify.search import (
    LayerRules,
    RequantizationRule,
    ResultTable,
    find_rules,
)
from nmpsim.analysis.identify.unnamed_dumps import match_unnamed_dumps
from nmpsim.analysis.program import Program
from nmpsim.diagnostics import fail

Progress = Callable[[int, int, str], object]
"""Called before each layer with the number of finished layers, the total and the layer's name."""


@attrs.frozen(eq=False)
class IdentifiedLayer:
    """Layer with the rules that explain its recorded results, or the fault if no rule does."""

    found: LayerRules
    fault: LayerFault | None = None

    @property
    def layer(self) -> AnyLayer:
        """Layer with its recorded input and result."""
        return self.found.layer

    @property
    def is_explained(self) -> bool:
        """Whether a rule explains all results, and is not less likely than a fault."""
        return bool(self.found.rules) and (self.fault is None or self.fault.is_alternative)


@attrs.frozen(eq=False)
class RuleClass:
    """Class of rules that explain all recorded results of layers of the same kind."""

    kind: str
    layers: tuple[AnyLayer, ...]
    rules: tuple[RequantizationRule, ...]
    """The simplest first."""
    further_results: int = 0
    """Results outside the sample of ``layers`` that the rules explain."""
    largest_sum: int = 0
    """Largest magnitude of the sums, without bias, that the rules explain. An accumulator that
    limits only larger sums gives the same results."""

    @property
    def results(self) -> int:
        """Number of results that the rules explain."""
        return sum(layer.results.size for layer in self.layers) + self.further_results

    @property
    def rule(self) -> RequantizationRule:
        """Rule that names the class: a rule that explains all layer kinds if one exists."""
        return self.rules[0]

    @property
    def profiles(self) -> list[str]:
        """Names of the built-in profiles among the rules of the class."""
        return [rule.profile for rule in self.rules if rule.profile]


@attrs.frozen(eq=False)
class Identification:
    """Identification of a program's requantization rules: layers, and classes of rules."""

    program: Program
    layers: tuple[IdentifiedLayer, ...]
    classes: tuple[RuleClass, ...]
    missing: tuple[str, ...]
    """Layers whose input or result is not in the dumps."""
    unused: tuple[str, ...]
    """Arrays of the dumps that belong to no tensor of the program."""
    partial: tuple[str, ...] = ()
    """Arrays of the dumps of which only the first rows were read."""
    by_name: int = 0
    """Number of tensors that were matched with an array by name."""
    by_order: int = 0
    """Number of tensors that were matched with an array by order or values."""

    @property
    def is_explained(self) -> bool:
        """Whether one rule for each kind of layer explains all recorded results."""
        kinds = [one.kind for one in self.classes]
        is_complete = all(one.is_explained for one in self.layers)
        return is_complete and len(set(kinds)) == len(kinds)

    @property
    def profile(self) -> str:
        """Name of a built-in profile that explains all layers, or "" if no profile does."""
        if not self.is_explained:
            return ""
        known = self.classes[0].profiles
        known = [name for name in known if all(name in one.profiles for one in self.classes)]
        return known[0] if known else ""


def identify_program(
    program: Program,
    dumps: Sequence[Path],
    progress: Progress | None = None,
    *,
    names: Mapping[str, str] | None = None,
    layout: str = "auto",
) -> Identification:
    """Identify the rules that explain the recorded results of a program's layers.

    Parameters
    ----------
    program
        Program with its constants.
    dumps
        ``.npz`` files or folders with inputs and results of layers, by name of the tensor. If
        layers lack their input or result, arrays of other names are matched with the remaining
        tensors.
    progress
        Called before each layer.
    names
        Name of an array -> name or display name of an instruction or input.
    layout
        Layout of the 4-D arrays: auto, same, nchw or nhwc.

    Raises
    ------
    UserError
        Codes of FILE, INPUT and MEM; DIFF001 for unknown names in ``names``; INPUT001 if no
        layer's input and result are in the dumps.
    """
    # ONNX Runtime and PyTorch, whose profiles begin with float, store channels first.
    is_first = program.numerics.startswith("float") if layout == "auto" else layout == "nchw"
    transposed = find_transpose_sources(program)
    files = [Dumps(path, is_first, transposed) for path in dumps]
    keys = {key for file in files for key in file.keys}
    layers, missing = _read_all_layers(program, files)
    if missing or names:
        for file in files:
            own = {
                key: name
                for key, name in (names or {}).items()
                if key in file.keys or (key not in keys and file is files[0])
            }
            match_unnamed_dumps(program, file, own, layout)
            file.read_keys.clear()
            file.partial.clear()
        layers, missing = _read_all_layers(program, files)
    if not layers:
        name = program.get_display_name(missing[0]) if missing else ""
        example = f"{next(iter(files[0].keys), 'ARRAY')}={name}"
        raise fail(
            "INPUT001",
            "the dumps contain no layer with its input and result",
            place=dumps[0],
            found=", ".join(files[0].keys[:6]) or "no array",
            expected="the input and the result of a convolution or fully connected layer",
            hint=f"Map arrays to the program's inputs and layers with --map, such as {example}."
            if missing
            else "Pass a program with quantized convolutions or fully connected layers.",
        )
    found: list[IdentifiedLayer] = []
    classes: dict[str, list[RuleClass]] = {layer.kind: [] for layer in layers}
    for index, layer in enumerate(layers):
        if progress is not None:
            progress(index, len(layers), layer.name)
        found.append(_identify_layer(layer, classes[layer.kind], program.numerics))
    for kind in classes.values():
        _merge_classes(kind, program.numerics)
    for index, one in enumerate(found):  # a later layer may show the rule of an earlier one
        if not one.is_explained and (one.fault is None or one.fault.kind == "scale"):
            shared = _share_rules(one.layer, classes[one.layer.kind], program.numerics)
            found[index] = one if shared is None else IdentifiedLayer(shared)
    further = sum(file.blocks - 1 for file in files) * len(layers)
    tables: dict[str, ResultTable] = {}
    for index, layer in enumerate(_iterate_further_layers(program, files)):
        if progress is not None:
            progress(index, further, layer.name)
        if layer.name not in tables:
            tables[layer.name] = ResultTable(next(layer.iterate_samples()))
        table = tables[layer.name]
        _verify_layer(layer, found, classes.get(layer.kind, []), table, program.numerics)
    unused = tuple(
        key
        for file in files
        for key in file.keys
        if key not in file.read_keys and not key.startswith(EXPECTED_PREFIX)
    )
    every = _prefer_common_rules([one for kind in classes.values() for one in kind])
    by_order = sum(len(file.read_keys & {*file.by_order.values()}) for file in files)
    return Identification(
        program,
        tuple(found),
        every,
        tuple(missing),
        unused,
        partial=tuple(key for file in files for key in file.keys if key in file.partial),
        by_name=sum(len(file.read_keys) for file in files) - by_order,
        by_order=by_order,
    )


def _iterate_further_layers(program: Program, files: Sequence[Dumps]) -> Iterator[AnyLayer]:
    """Yield the layers with the rows that the search did not read, one block after the other."""
    for file in files:
        for block in range(1, file.blocks):
            file.block = block
            yield from read_layers(program, file)[0]


def _verify_layer(
    layer: AnyLayer,
    found: list[IdentifiedLayer],
    classes: list[RuleClass],
    table: ResultTable,
    numerics: str,
) -> None:
    """Verify the rules of a layer on rows that the search did not read; update layer and class."""
    for index, one in enumerate(classes):
        if layer.name not in [known.name for known in one.layers]:
            continue
        shared = find_rules(layer, group_rules(one.rules), table=table)
        if shared.rules:
            rules = sort_rules(shared.rules, numerics)
            count = one.further_results + layer.results.size
            largest = max(one.largest_sum, shared.largest_sum)
            classes[index] = attrs.evolve(
                one, rules=rules, further_results=count, largest_sum=largest
            )
        else:
            unexplained = IdentifiedLayer(shared)
            found[:] = [unexplained if one.layer.name == layer.name else one for one in found]


def _read_all_layers(program: Program, files: Sequence[Dumps]) -> tuple[list[AnyLayer], list[str]]:
    """Return the layers whose input and result are in a file, and the names of other layers."""
    read = [read_layers(program, file) for file in files]
    layers = [layer for found, _ in read for layer in found]
    known = {layer.name for layer in layers}
    return layers, [name for name in read[0][1] if name not in known]


def _prefer_common_rules(classes: Sequence[RuleClass]) -> tuple[RuleClass, ...]:
    """Return classes whose first rules are those of all classes, if there are any."""
    names = [{_get_common_name(rule) for rule in one.rules} for one in classes]
    common = set.intersection(*names) if names else set()
    return tuple(
        attrs.evolve(
            one,
            rules=tuple(sorted(one.rules, key=lambda rule: _get_common_name(rule) not in common)),
        )
        for one in classes
    )


def _get_common_name(rule: RequantizationRule) -> str:
    """Return the name of a rule, which is the same for sums with and without a bias."""
    return rule.name.removesuffix(f"; bias in the {IN_SUM}")


def _identify_layer(layer: AnyLayer, classes: list[RuleClass], numerics: str) -> IdentifiedLayer:
    """Search the rules of a layer, first among those of earlier layers, and update classes."""
    shared = _share_rules(layer, classes, numerics)
    if shared is not None:
        return IdentifiedLayer(shared)
    found = find_rules(layer)
    # Arrays of another layer are no fault of the data.
    fault = None if layer.is_by_order else find_fault(found, numerics)
    if fault is not None and not fault.is_alternative:
        return IdentifiedLayer(attrs.evolve(found, rules=fault.rules), fault)
    if found.rules:
        rules = sort_rules(found.rules, numerics)
        classes.append(RuleClass(layer.kind, (layer,), rules, largest_sum=found.largest_sum))
    return IdentifiedLayer(found, fault)


def _share_rules(layer: AnyLayer, classes: list[RuleClass], numerics: str) -> LayerRules | None:
    """Return the rules of the first class that explain a layer, and add the layer to the class."""
    for index, known in enumerate(classes):
        shared = find_rules(layer, group_rules(known.rules))
        if shared.rules:
            rules = sort_rules(shared.rules, numerics)
            classes[index] = attrs.evolve(
                known, layers=(*known.layers, layer), rules=rules,
                largest_sum=max(known.largest_sum, shared.largest_sum),
            )  # fmt: skip
            return shared
    return None


def _merge_classes(classes: list[RuleClass], numerics: str) -> None:
    """Merge classes whose layers the rules of a later class explain, too."""
    for one in classes[:-1]:
        for later in classes[classes.index(one) + 1 :]:
            merged: list[RuleClass] = [later]
            if all(_share_rules(layer, merged, numerics) for layer in one.layers):
                classes[classes.index(later)] = merged[0]
                classes.remove(one)
                break


def group_rules(rules: Sequence[RequantizationRule]) -> list[list[RequantizationRule]]:
    """Group rules by formula; return a list of rules for each formula."""
    groups: dict[Any, list[RequantizationRule]] = {}
    for rule in rules:
        groups.setdefault((rule.profile, id(rule.family), rule.limits), []).append(rule)
    return list(groups.values())


def sort_rules(
    rules: Sequence[RequantizationRule], numerics: str
) -> tuple[RequantizationRule, ...]:
    """Sort rules by simplicity; the program's own profile, ``numerics``, comes first."""
    return tuple(sorted(rules, key=lambda rule: (rule.profile != numerics, rule.rank)))
