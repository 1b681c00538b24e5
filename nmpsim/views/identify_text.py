"""Identified rules as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from nmpsim.analysis.identify.classes import Identification, IdentifiedLayer, RuleClass
from nmpsim.analysis.identify.layers import RecordedLayer
from nmpsim.analysis.identify.probe import ClassProbe, is_open_class
from nmpsim.analysis.program import Program
from nmpsim.diagnostics import format_count, join_first
from nmpsim.views.console import print_heading, print_line

_SHOWN, _NAMED = 4, 5
"""Rules of a class and names of a list that are shown."""


def print_identification(
    found: Identification,
    probes: Sequence[ClassProbe],
    console: Console,
    *,
    show_all: bool = False,
) -> None:
    """Print the rules of each kind of layer, the layers without any rule, and the probes."""
    for one in found.classes:
        _print_class(one, probes, console, show_all)
    unexplained = [one for one in found.layers if not one.is_explained]
    for layer in found.layers:
        if layer in unexplained:
            _print_unexplained(layer, found.program, console)
        elif layer.fault is not None:
            print_heading(
                console, f"{found.program.get_display_name(layer.layer.name)}: or a fault"
            )
            print_line(console, f"  {layer.fault.text}")
    if found.by_order:
        print_line(console, f"tensors: {found.by_name:,} by name, {found.by_order:,} by order")
    missing = [*map(found.program.get_display_name, found.missing)]
    _print_names("not in the dumps", missing, console)
    _print_names("only the first rows were read", found.partial, console)
    for probe in probes:
        print_line(console, f"probe of the class {probe.rule_class.kind}: {_describe_probe(probe)}")
    count, total = len(found.layers) - len(unexplained), len(found.layers)
    verdict = f"{count:,} of {total:,} layers explained"
    if found.profile:
        is_open = any(is_open_class(one, probes) for one in found.classes)
        verdict = f"profile {found.profile}{' or other rules' if is_open else ''}: {verdict}"
    print_line(console, f"{found.program.module.name}: {verdict}", "bold")


def _print_class(
    one: RuleClass, probes: Sequence[ClassProbe], console: Console, show_all: bool
) -> None:
    count, is_open = len(one.rules), is_open_class(one, probes)
    name = f"{count:,} rules, the simplest is {one.rule.name}" if is_open else one.rule.name
    print_heading(console, f"{one.kind}: {name}")
    layers = format_count(len(one.layers), "layer")
    verb = "each explains" if is_open else "explains"
    print_line(console, f"  {verb} all {one.results:,} results of {layers}")
    if isinstance(one.layers[0], RecordedLayer):
        bits = one.largest_sum.bit_length() + 1
        text = f"recorded sums need {bits} bits; wider sums may be limited in another way"
        print_line(console, f"  {text}")
    if is_open and not probes:
        print_line(console, "  --probe P.npz writes an input that tells rules apart")
    others = one.rules[1:] if show_all else one.rules[1 : 1 + _SHOWN]
    if others:
        are = "other rules" if is_open else "rules are equal to it"
        print_line(console, f"  {count - 1:,} {are}:")
    for rule in others:
        print_line(console, f"    {rule.name}")
    if len(others) < count - 1:
        print_line(console, "    and more; --all shows them")


def _describe_probe(one: ClassProbe) -> str:
    """Describe the probe of a class, or the reason why there is none."""
    if one.probe is None:
        if one.is_equal:
            return "not needed, because the rules are equal for all inputs and weights"
        known = "the rules differ" if one.is_equal is False else "not all inputs were compared"
        hint = "; pass --probe-weights to replace weights or biases" if one.may_have_weights else ""
        return f"none found: {known}{hint}"
    replaced = ", ".join(one.probe.constants)
    more = f"; its constants replace {replaced}" if replaced else ""
    return f"divides the rules into {len(one.probe.groups):,} groups{more}"


def _print_names(title: str, names: Sequence[str], console: Console) -> None:
    """Print the first names after a title; print nothing if there is no name."""
    if names:
        print_line(console, f"{title}: {join_first(names, _NAMED)}")


def _print_unexplained(one: IdentifiedLayer, program: Program, console: Console) -> None:
    found, name = one.found, program.get_display_name(one.layer.name)
    print_heading(console, f"{name}: no rule explains all results")
    if one.layer.is_by_order:
        print_line(console, "  its arrays were matched by order; --map names the right ones")
    if one.fault is not None:
        print_line(console, f"  {one.fault.text}")
    if found.closest is not None:
        share = found.equal / max(found.elements, 1)
        print_line(
            console,
            f"  closest: {found.closest.name}: {found.equal:,} of {found.elements:,} ({share:.2%})",
        )
        print_line(console, f"  {found.residual}")
