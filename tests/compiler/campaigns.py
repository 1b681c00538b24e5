"""Settings of the compiler's random tests; ``python -m tests.campaign`` runs them for hours."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def examples(count: int) -> settings:
    return settings(max_examples=count, suppress_health_check=list(HealthCheck))
