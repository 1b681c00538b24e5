"""Identified rules as text."""

from __future__ import annotations

from rich.console import Console

from nmpsim.analysis.identify.classes import Identification, IdentifiedLayer, RuleClass
from nmpsim.views.console import print_heading, print_line

_SHOWN = 4
"""Rules of a class that are shown."""


def print_identification(
    found: Identification, groups: int | None, console: Console, *, show_all: bool = False
) -> None:
    """Print the rules of each kind of layer, and the layers that no rule explains."""
    for one in found.classes:
        _print_class(one, console, show_all)
    unexplained = [one for one in found.layers if one.fault or not one.found.rules]
    for layer in unexplained:
        _print_unexplained(layer, console)
    if found.missing:
        print_line(console, f"not in the dumps: {', '.join(found.missing)}")
    if groups is not None:
        text = f"divides the rules into {groups:,} groups" if groups > 1 else "none found"
        print_line(console, f"probe: {text}")
    count, total = len(found.layers) - len(unexplained), len(found.layers)
    verdict = f"{count:,} of {total:,} layers explained"
    if found.profile:
        verdict = f"profile {found.profile}: {verdict}"
    print_line(console, f"{found.program.module.name}: {verdict}", "bold")


def _print_class(one: RuleClass, console: Console, show_all: bool) -> None:
    elements = sum(layer.results.size for layer in one.layers)
    print_heading(console, f"{one.kind}: {one.rule.name}")
    layers = f"{len(one.layers):,} layer{'s' if len(one.layers) != 1 else ''}"
    print_line(console, f"  explains all {elements:,} results of {layers}")
    others = one.rules[1:] if show_all else one.rules[1 : 1 + _SHOWN]
    if others:
        print_line(console, f"  {len(one.rules) - 1:,} other rules explain them too:")
    for rule in others:
        print_line(console, f"    {rule.name}")
    if len(others) < len(one.rules) - 1:
        print_line(console, "    and more; --all shows them")


def _print_unexplained(one: IdentifiedLayer, console: Console) -> None:
    found = one.found
    print_heading(console, f"{one.layer.name}: no rule explains all results")
    if one.fault is not None:
        print_line(console, f"  {one.fault.text}")
    if found.closest is not None:
        share = found.equal / max(found.elements, 1)
        print_line(
            console,
            f"  closest: {found.closest.name}: {found.equal:,} of {found.elements:,} ({share:.2%})",
        )
        print_line(console, f"  {found.residual}")
