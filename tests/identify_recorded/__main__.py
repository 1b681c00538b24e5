"""``python -m tests.identify_recorded``: identify recorded layers and report what was named."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
from shared_files import shared_folder

from nmpsim.analysis.identify import Identification, identify_program
from nmpsim.analysis.program import Program
from nmpsim.diagnostics import UserError
from tests.identify_recorded.sources import SOURCES, RecordedCase

MISSING = "not recorded"
"""Outcome of a layer whose input or result was not recorded."""


def identify_case(case: RecordedCase, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the outcome and the name of each layer of a case; "named" if its profile was found.

    The program is identified without its profile.
    """
    layout = "nchw" if case.program.numerics.startswith("float") else "same"
    unknown = attrs.evolve(case.program, numerics="glow-int", layer_numerics={}, formulas=None)
    np.savez(folder / "dumps.npz", **case.arrays)
    try:
        found = identify_program(unknown, [folder / "dumps.npz"], layout=layout)
    except UserError as error:
        yield f"not usable: {error.diagnostics[0].message}", case.name
        return
    for outcome, layer in rate_layers(case.program, found):
        yield outcome, f"{case.name} {layer}"


def rate_layers(program: Program, found: Identification) -> Iterator[tuple[str, str]]:
    """Yield the outcome and the name of each layer of an identification."""
    for one in found.layers:
        layer = one.layer
        expected = program.get_numerics(layer.name)
        rules = next((each.rules for each in found.classes if layer in each.layers), ())
        profiles = {rule.profile for rule in rules}
        if one.fault is not None:
            yield f"fault: {one.fault.kind}", layer.name
        elif not one.found.rules:
            yield "not explained", layer.name
        elif expected in profiles:
            yield "named", layer.name
        elif len(np.unique(layer.results)) < 3:
            yield "explained, but the results have less than 3 values", layer.name
        else:
            yield f"other rule than {expected}", layer.name
    for name in found.missing:
        yield MISSING, name


def main() -> int:
    """Run the campaign and print how many layers of each source were named, and which not."""
    parser = argparse.ArgumentParser(prog="python -m tests.identify_recorded")
    parser.add_argument("--only", default="", help="run the sources whose names contain this text")
    options = parser.parse_args()
    is_complete = True
    for title, source in SOURCES.items():
        if options.only not in title:
            continue
        outcomes: Counter[str] = Counter()
        with tempfile.TemporaryDirectory() as folder:
            for case in source(shared_folder(), Path(folder)):
                for outcome, name in identify_case(case, Path(folder)):
                    outcomes[outcome] += 1
                    if outcome not in ("named", MISSING):
                        print(f"{title}: {name}: {outcome}", flush=True)
        recorded = outcomes.total() - outcomes[MISSING]
        print(f"{title}: {outcomes['named']} of {recorded} layers named; {dict(outcomes)}")
        is_complete &= outcomes["named"] == recorded
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
