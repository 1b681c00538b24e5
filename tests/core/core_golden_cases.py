"""Recorded cases of the reference files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Case = dict[str, Any]


def glow_cases(shared: Path, name: str) -> Iterator[tuple[str, Case]]:
    """Each case of a file with its name: key -> array."""
    z = np.load(shared / "golden" / "glow" / name)
    count = int(z["ncases"])
    found: list[Case] = [{} for _ in range(count)]
    for key in z.files:
        number, _, rest = key.partition(".")
        if rest:
            found[int(number)][rest] = z[key]
    assert count > 0
    for number, case in enumerate(found):
        yield f"{name} {number}", case
