"""Damaged recordings that layer kernels once computed differently from their tiles."""

from __future__ import annotations

import whole_campaign

TABLE_NOT_LOADED = 6000946
"""Seed: a tile reads a constant table that it has not loaded."""


def test_a_tile_must_have_loaded_its_constant_table() -> None:
    recorded = list(whole_campaign.recordings())
    whole_campaign.damage(recorded[TABLE_NOT_LOADED % len(recorded)], TABLE_NOT_LOADED)
