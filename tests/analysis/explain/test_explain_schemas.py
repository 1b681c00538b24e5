"""Schemas for a range of real numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nmpsim.analysis.explain import fit_schemas
from nmpsim.analysis.explain.factors import ELEMS
from nmpsim.quantization.parameters import SCHEMAS

RECORDED = ("asymmetric", "symmetric", "symmetric-with-uint8", "symmetric-with-power2-scale")


def test_every_schema_is_shown_at_both_precisions() -> None:
    fits = fit_schemas(-1.5, 2.25)
    assert [(fit.elem, fit.schema) for fit in fits] == [(e, s) for e in ELEMS for s in SCHEMAS]


def test_the_worked_example_is_right() -> None:
    """-1.5 to 2.25 in 255 steps, or 127 of 2.25, or the power of two above that."""
    asymmetric, symmetric, unsigned, power = fit_schemas(-1.5, 2.25)[:4]
    assert asymmetric.scale == float(np.float32(3.75 / 255))
    assert (asymmetric.offset, asymmetric.use) == (-26, pytest.approx(1.0))
    assert symmetric.scale == float(np.float32(2.25 / 127))
    assert symmetric.use == pytest.approx(3.75 / (255 * 2.25 / 127))
    assert unsigned.scale == symmetric.scale
    assert (power.scale, power.low, power.high) == (2.0**-5, -4.0, 127 * 2.0**-5)
    assert power.use == pytest.approx(3.75 * 32 / 255)


def test_the_range_is_widened_to_include_zero() -> None:
    assert fit_schemas(1.0, 2.0)[0].low == 0.0
    assert fit_schemas(1.0, 2.0)[0].use == pytest.approx(1.0)
    assert fit_schemas(0.0, 0.0)[0].use == 0.0


def test_parameters_equal_glow(shared: Path) -> None:
    with np.load(shared / "golden/glow/choose_qparams.npz") as archive:
        golden = dict(archive)
    for low, high, schema, elem, scale, offset in list(
        zip(*(golden[k] for k in ("min", "max", "schema", "elem", "scale", "offset")), strict=True)
    )[:400]:
        if elem not in ELEMS:
            continue
        (fit,) = (
            one
            for one in fit_schemas(float(low), float(high))
            if (one.elem, one.schema) == (str(elem), RECORDED[int(schema)])
        )
        assert (np.float32(fit.scale), fit.offset) == (scale, offset)
