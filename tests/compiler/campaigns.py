"""How many examples a random test runs: ``NMPSIM_CAMPAIGN=50`` makes it fifty times as many."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("NMPSIM_CAMPAIGN", "1"))


def examples(count: int) -> settings:
    return settings(
        max_examples=count * TIMES, deadline=None, suppress_health_check=list(HealthCheck)
    )
