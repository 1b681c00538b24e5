"""What a run tells of its layers only if its work was recorded (``nmpsim run --timeline``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from nmpsim.config import from_settings
from nmpsim.report.data import RunReport


def scratchpad_shares(report: RunReport) -> Mapping[int, float]:
    """Which share of a scratchpad each layer used, by its index; empty if nothing was recorded."""
    used: Counter[int] = Counter()
    for block in report.scratchpads:
        used[block.layer] += block.end - block.begin
    size = from_settings(report.device).scratchpad_bytes if used else 1
    return {layer: nbytes / size for layer, nbytes in used.items()}
