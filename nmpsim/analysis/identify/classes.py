"""Classes of rules that the dumps of a program cannot tell apart, for each kind of layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from nmpsim.analysis.identify.dumps import Dumps
from nmpsim.analysis.identify.faults import LayerFault, find_fault
from nmpsim.analysis.identify.layers import CONNECTED, CONVOLUTION, RecordedLayer, read_layers
from nmpsim.analysis.identify.search import LayerRules, RequantizationRule, find_rules
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
    def layer(self) -> RecordedLayer:
        """Layer with its recorded input and result."""
        return self.found.layer


@attrs.frozen(eq=False)
class RuleClass:
    """Class of rules that explain all recorded results of layers of the same kind."""

    kind: str
    layers: tuple[RecordedLayer, ...]
    rules: tuple[RequantizationRule, ...]
    """The simplest first."""

    @property
    def rule(self) -> RequantizationRule:
        """First rule of the class, preferably one that all classes share."""
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

    @property
    def is_explained(self) -> bool:
        """Whether one rule for each kind of layer explains all recorded results."""
        kinds = [one.kind for one in self.classes]
        is_complete = all(one.found.rules and one.fault is None for one in self.layers)
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
    program: Program, dumps: Sequence[Path], progress: Progress | None = None
) -> Identification:
    """Identify the rules that explain the recorded results of a program's layers.

    Parameters
    ----------
    program
        Program with its constants.
    dumps
        ``.npz`` files with inputs and results of layers, by name of the tensor.
    progress
        Called before each layer.

    Raises
    ------
    UserError
        Codes of FILE, INPUT and MEM; INPUT001 if no layer's input and result are in the dumps.
    """
    # ONNX Runtime and PyTorch, whose profiles begin with float, store channels first.
    channels_first = program.numerics.startswith("float")
    files = [Dumps(path, channels_first) for path in dumps]
    read = [read_layers(program, file) for file in files]
    layers = [layer for found_layers, _ in read for layer in found_layers]
    known = {layer.name for layer in layers}
    missing = [name for name in read[0][1] if name not in known]
    if not layers:
        raise fail(
            "INPUT001",
            "the dumps contain no layer with its input and result",
            place=dumps[0],
            found=", ".join(files[0].keys[:6]) or "no array",
            expected="the input and the result of a convolution or fully connected layer",
            hint=f"Name the arrays as the program names the tensors, such as {missing[0]!r}."
            if missing
            else "Pass a program with quantized convolutions or fully connected layers.",
        )
    found: list[IdentifiedLayer] = []
    classes: dict[str, list[RuleClass]] = {CONVOLUTION: [], CONNECTED: []}
    for index, layer in enumerate(layers):
        if progress is not None:
            progress(index, len(layers), layer.name)
        found.append(_identify_layer(layer, classes[layer.kind], program.numerics))
    unused = tuple(key for file in files for key in file.keys if key not in file.read_keys)
    every = _prefer_common_rules([one for kind in classes.values() for one in kind])
    return Identification(program, tuple(found), every, tuple(missing), unused)


def _prefer_common_rules(classes: Sequence[RuleClass]) -> tuple[RuleClass, ...]:
    """Return classes whose first rules are those of all classes, if there are any."""
    names = [{rule.name for rule in one.rules} for one in classes]
    common = set.intersection(*names) if names else set()
    return tuple(
        attrs.evolve(one, rules=tuple(sorted(one.rules, key=lambda rule: rule.name not in common)))
        for one in classes
    )


def _identify_layer(
    layer: RecordedLayer, classes: list[RuleClass], numerics: str
) -> IdentifiedLayer:
    """Search the rules of a layer, first among those of earlier layers, and update classes."""
    for index, known in enumerate(classes):
        shared = find_rules(layer, group_rules(known.rules))
        if shared.rules:
            rules = sort_rules(shared.rules, numerics)
            classes[index] = attrs.evolve(known, layers=(*known.layers, layer), rules=rules)
            return IdentifiedLayer(shared)
    found = find_rules(layer)
    if not found.rules:
        fault = find_fault(found)
        if fault is None:
            return IdentifiedLayer(found)
        found = attrs.evolve(found, rules=fault.rules)
        if fault.is_data_fault:
            return IdentifiedLayer(found, fault)
    rules = sort_rules(found.rules, numerics)
    classes.append(RuleClass(layer.kind, (layer,), rules))
    return IdentifiedLayer(found)


def group_rules(rules: Sequence[RequantizationRule]) -> list[list[RequantizationRule]]:
    """Group rules by formula; return a list of rules for each formula."""
    groups: dict[Any, list[RequantizationRule]] = {}
    for rule in rules:
        groups.setdefault(rule.profile or id(rule.family), []).append(rule)
    return list(groups.values())


def sort_rules(
    rules: Sequence[RequantizationRule], numerics: str
) -> tuple[RequantizationRule, ...]:
    """Sort rules by simplicity; the program's own profile, ``numerics``, comes first."""
    return tuple(sorted(rules, key=lambda rule: (rule.profile != numerics, rule.rank)))
