"""Test Glow's choice of quantization parameters, and its integers for a factor."""

from pathlib import Path

import numpy as np
from oracles import page
from tally import Tally


def test_scale_and_zero_point_equal_glow(shared: Path) -> None:
    z, tally = dict(np.load(shared / "golden" / "glow" / "choose_qparams.npz")), Tally()
    for low, high, schema, element, scale, zero in zip(
        *(z[k] for k in ("min", "max", "schema", "elem", "scale", "offset")), strict=True
    ):
        found = page.choose_quantization_params(low, high, page.SCHEMAS[schema], str(element))
        tally.assert_equal("choose_qparams", found, (scale, zero), (low, high, schema, element))
    tally.assert_matches_page()


def test_scale_of_a_bias_equals_glow(shared: Path) -> None:
    z, tally = dict(np.load(shared / "golden" / "glow" / "bias_qparams.npz")), Tally()
    for i in range(z["bias_scale"].size):
        own, x, w = z["bias_scale"][i], z["in_scale"][i], z["weights_scale"][i]
        element, all_zero = str(z["bias_elem"][i]), bool(z["bias_is_zero"][i])
        zero = 0 if element == "i32" else z["bias_offset"][i]
        found = page.bias_scale(own, x, w, all_zero), zero
        expected = z["spec_bias_scale"][i], z["spec_bias_offset"][i]
        tally.assert_equal("bias_qparams, one scale", found, expected)
        found = (*page.channel_scales(own, x, w, element, all_zero), zero)
        names = ("spec2_bias_scale", "spec2_weights_scale", "spec2_bias_offset")
        tally.assert_equal("bias_qparams, a scale a channel", found, [z[name][i] for name in names])
    tally.assert_matches_page()


def test_integers_of_a_factor_equal_glow(shared: Path) -> None:
    z, tally = dict(np.load(shared / "golden" / "glow" / "transform32to8.npz")), Tally()
    form = page.integer_scale(z["scale"])
    tally.assert_equal("transform32to8, integers", form, [z["pre"], z["mul"], z["post"]])
    pre, mul, post = (part[:, None] for part in form)
    y = page.scale32(z["x"].astype(np.int64), pre, mul, post) + z["offset"][:, None]
    tally.assert_equal("transform32to8, applied", y, z["y"])
    assert not z["intermediate_overflows_int32"].any()
    tally.assert_matches_page()
