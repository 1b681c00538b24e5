"""What checks found as JSON data; docs/check.md describes each field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from nmpsim.checking.results import CaseResult, exit_code
from nmpsim.experiments.identity import code_version

SCHEMA = "nmpsim-check-3"


def check_json(results: Sequence[CaseResult]) -> dict[str, Any]:
    """All cases."""
    return {
        "schema": SCHEMA,
        "nmpsim": code_version(),
        "exit_code": exit_code(results),
        "cases": [_case(result) for result in results],
    }


def _case(result: CaseResult) -> dict[str, Any]:
    layers = attrs.asdict(result, filter=lambda field, _: field.name != "saturation")["layers"]
    return {
        "name": result.name,
        "status": result.status,
        "source": result.source,
        "contract": result.contract,
        "cycles": result.cycles,
        "cycles_before": result.cycles_before,
        "device_changes": list(result.device_changes),
        "baseline_written": result.baseline_written,
        "core": None if result.core is None else attrs.asdict(result.core),
        "errors": [str(error) for error in result.errors],
        "checks": [attrs.asdict(check) for check in result.checks],
        "layers": [
            {**layer, "change": one.change}
            for layer, one in zip(layers, result.layers, strict=True)
        ],
    }
