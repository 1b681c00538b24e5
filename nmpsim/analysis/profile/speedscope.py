"""A profile in the file format of speedscope.

Source: https://www.speedscope.app/file-format-schema.json.
"""

from __future__ import annotations

from typing import Any

from nmpsim.analysis.profile.call_stacks import HALTED, CallStacks
from nmpsim.core.execution_log import NO_FUNCTION, CodeLayout

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
SPECIAL_FRAMES = {NO_FUNCTION: "[no function]", HALTED: "[halted]"}
"""Number in place of a function -> name of its frame."""


def make_speedscope_document(
    program: str, layout: CodeLayout, stacks: CallStacks
) -> dict[str, Any]:
    """Make the JSON document of a profile, with the cycles and the instructions of each core.

    The cycles of a core add up to its last cycle, including the time after its halt.
    """
    frames: list[dict[str, Any]] = [{"name": name} for name in SPECIAL_FRAMES.values()]
    numbers = {function: number for number, function in enumerate(SPECIAL_FRAMES)}
    for number, (name, place) in enumerate(layout.names):
        numbers[number] = len(frames)
        source = {} if place is None else {"file": place.file, "line": place.line}
        frames.append({"name": name, **source})
    profiles = []
    for measure in ("cycles", "instructions"):
        for core in range(stacks.cores):
            weighted = [(path, getattr(path, measure)) for path in stacks.list_paths(core)]
            weighted = [(path, weight) for path, weight in weighted if weight]
            weights = [weight for _, weight in weighted]
            samples = [[numbers[one] for one in path.list_functions()] for path, _ in weighted]
            profiles.append(
                {
                    "type": "sampled",
                    "name": f"core {core}: {measure}",
                    "unit": "none",
                    "startValue": 0,
                    "endValue": sum(weights),
                    "samples": samples,
                    "weights": weights,
                }
            )
    return {
        "$schema": SCHEMA,
        "name": program,
        "exporter": "nmpsim",
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": profiles,
    }
