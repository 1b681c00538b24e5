"""Glow's own Int8 results (libjit), each computed by an instruction on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from core_machines import device, from_descriptors, run_both
from core_tensors import (
    FULL_CLIP,
    Array,
    Job,
    Layout,
    at,
    channel_records,
    pack_weights,
    padded_image,
    scale,
    scale_records,
    window_sizes,
)

from nmpsim.kernels.scale import integer_scale, integer_scales

F32 = np.float32
DEVICE = device(scratchpad_bytes=1 << 20)
Case = dict[str, Any]


def cases(shared: Path, name: str) -> Iterator[tuple[str, Case]]:
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


def run(layout: Layout, *jobs: Job) -> Array:
    """Run both engines; the scratchpad, signed."""
    m = run_both(from_descriptors(*jobs, scratchpad=layout.contents(), config=DEVICE))
    assert m.shared.trap[0, 0] == -1
    contents: Array = m.scratchpad_i8[0]
    return contents


def checked_scale(case: Case, prefix: str, factor: Any, words: str) -> dict[str, int]:
    """The scale of a real factor as words; it is what the file recorded."""
    s = integer_scale(float(factor))
    recorded = [int(case[f"{prefix}{part}"]) for part in ("pre", "mul", "post")]
    assert [s.pre, s.mul, s.post] == recorded
    return scale(words, s.pre, s.mul, s.post)


def checked_scales(case: Case, prefix: str, factors: Array) -> tuple[Array, Array, Array]:
    """Scales of many factors as (pre, mul, post); they are what the file recorded."""
    pre, post, mul = integer_scales(factors)
    for part, values in (("pre", pre), ("mul", mul), ("post", post)):
        np.testing.assert_array_equal(values, case[prefix + part])
    return pre, mul, post


def convolution(case: Case, weights: Array, words: Case, tables: Array | None = None) -> Array:
    """Result of ``nmp.conv`` for each image of the batch: NHWC."""
    x, in_offset = case["input"], int(case["in_offset"])
    x = padded_image(x, case["pads_tlbr"], in_offset)
    out, kh, kw, depth = weights.shape
    bias = case["bias"].astype(np.int64) - case.get("bias_offsets", case.get("bias_offset"))
    offsets = np.broadcast_to(case.get("filter_offsets", case.get("filter_offset")), out)
    offsets = offsets.astype(np.int64)
    sums = weights.astype(np.int64).sum(axis=(1, 2, 3))
    zero_terms = in_offset * (kh * kw * depth * offsets - sums)
    sizes = window_sizes(case, x)
    pixels = sizes["out_h"] * sizes["out_w"]
    results = []
    for image in x:
        layout = Layout()
        output = layout.reserve(pixels * out)
        shape = {
            **sizes,
            "input": layout.put(image),
            "weights": layout.put(pack_weights(weights), 64),
            "channels": layout.put(channel_records(bias, zero_terms)),
            "scales": 0 if tables is None else layout.put(tables),
            "output": output,
            "groups": int(case["group"]),
            "in_channels": depth,
            "out_channels": out,
            "in_row_stride": image.shape[1] * image.shape[2],
            "in_pixel_stride": image.shape[2],
            "out_row_stride": sizes["out_w"] * out,
            "out_pixel_stride": out,
            "out_offset": int(case["out_offset"]),
        }
        spm = run(layout, ("nmp.conv", {**FULL_CLIP, **shape, **words}))
        results.append(spm[at(output) :][: pixels * out].reshape(sizes["out_h"], -1, out))
    return np.stack(results)


def relu(case: Case) -> Case:
    return {"clip_low": int(case["out_offset"]), "clip_wanted": 1}


def test_convolution(shared: Path) -> None:
    ran = 0
    for name, case in cases(shared, "conv_i8.npz"):
        product = F32(case["in_scale"] * case["filter_scale"])
        words = {
            "weight_offset": int(case["filter_offset"]),
            **checked_scale(case, "bias_", case["bias_scale"] / product, "bias"),
            **checked_scale(case, "out_", product / case["out_scale"], "out"),
        }
        y = convolution(case, case["filter"], words)
        np.testing.assert_array_equal(y, case["expected_libjit"], err_msg=name)
        if "expected_libjit_relu" in case:
            y = convolution(case, case["filter"], {**words, **relu(case)})
            np.testing.assert_array_equal(y, case["expected_libjit_relu"], err_msg=name)
        ran += 1
    assert ran == 90


def test_convolution_with_a_scale_a_channel(shared: Path) -> None:
    ran = 0
    for name, case in cases(shared, "conv_channelwise_i8.npz"):
        product = (case["in_scale"] * case["filter_scales"]).astype(F32)
        tables = scale_records(
            case["filter_offsets"],
            checked_scales(case, "bias_", case["bias_scales"] / product),
            checked_scales(case, "out_", product / case["out_scale"]),
        )
        y = convolution(case, case["filter"], {}, tables)
        np.testing.assert_array_equal(y, case["expected_libjit"], err_msg=name)
        if "expected_libjit_relu" in case:
            y = convolution(case, case["filter"], relu(case), tables)
            np.testing.assert_array_equal(y, case["expected_libjit_relu"], err_msg=name)
        ran += 1
    assert ran == 24


def as_convolution(case: Case, rows: Array) -> Case:
    """A fully connected layer is a convolution of one row of pixels with a 1x1 window."""
    m, k = case["input"].shape
    window = {"kernels": (1, 1), "strides": (1, 1), "pads_tlbr": (0, 0, 0, 0), "group": 1}
    offsets = case.get("weights_offsets", case.get("weights_offset"))
    filters = {"filter_offset": offsets, "input": case["input"].reshape(1, 1, m, k)}
    return {**case, **window, **filters, "rows": rows}


def test_fully_connected_and_matrix_product(shared: Path) -> None:
    ran = 0
    for name, case in cases(shared, "fc_i8.npz"):
        product = F32(case["in_scale"] * case["weights_scale"])
        words = {
            "weight_offset": int(case["weights_offset"]),
            **checked_scale(case, "bias_", case["bias_scale"] / product, "bias"),
            **checked_scale(case, "out_", product / case["out_scale"], "out"),
        }
        k, n = case["weights"].shape
        filters = case["weights"].T.reshape(n, 1, 1, k)
        y = convolution(as_convolution(case, filters), filters, words)
        np.testing.assert_array_equal(y[0, 0], case["expected_libjit"], err_msg=name)

        m = case["input"].shape[0]
        layout = Layout()
        output = layout.reserve(m * n)
        matrix = {
            "lhs": layout.put(case["input"]),
            "rhs": layout.put(case["weights"]),
            "output": output,
            "rows": m,
            "inner": k,
            "columns": n,
            "lhs_stride": k,
            "rhs_stride": n,
            "out_stride": n,
            "lhs_offset": int(case["in_offset"]),
            "rhs_offset": int(case["weights_offset"]),
            "out_offset": int(case["out_offset"]),
            **checked_scale(case, "matmul_", product / case["out_scale"], "out"),
        }
        spm = run(layout, ("nmp.gemm", {**FULL_CLIP, **matrix}))
        y = spm[at(output) :][: m * n].reshape(m, n)
        np.testing.assert_array_equal(y, case["expected_matmul_libjit"], err_msg=name)
        ran += 1
    assert ran == 40


def test_fully_connected_with_a_scale_a_row(shared: Path) -> None:
    ran = 0
    for name, case in cases(shared, "fc_rowwise_i8.npz"):
        product = (case["in_scale"] * case["weights_scales"]).astype(F32)
        tables = scale_records(
            case["weights_offsets"],
            checked_scales(case, "bias_", case["bias_scale"] / product),
            checked_scales(case, "out_", product / case["out_scale"]),
        )
        n, k = case["weights"].shape
        filters = case["weights"].reshape(n, 1, 1, k)
        y = convolution(as_convolution(case, filters), filters, {}, tables)
        np.testing.assert_array_equal(y[0, 0], case["expected_libjit"], err_msg=name)
        ran += 1
    assert ran == 10


def test_elementwise(shared: Path) -> None:
    ran = 0
    for name, case in cases(shared, "elementwise_i8.npz"):
        operation = str(case["op"])
        if operation == "mul":
            ratio = F32(case["lhs_scale"] * case["rhs_scale"]) / case["out_scale"]
            words = checked_scale(case, "", ratio, "out")
        else:
            words = {
                **checked_scale(case, "lhs_", case["lhs_scale"] / case["out_scale"], "lhs"),
                **checked_scale(case, "rhs_", case["rhs_scale"] / case["out_scale"], "rhs"),
            }
        layout = Layout()
        count = case["lhs"].size
        output = layout.reserve(count)
        pair = {
            "operation": operation,
            "lhs": layout.put(case["lhs"]),
            "rhs": layout.put(case["rhs"]),
            "output": output,
            "rows": 1,
            "columns": count,
            "lhs_offset": int(case["lhs_offset"]),
            "rhs_offset": int(case["rhs_offset"]),
            "out_offset": int(case["out_offset"]),
        }
        spm = run(layout, ("nmp.eltwise", {**FULL_CLIP, **pair, **words}))
        y = spm[at(output) :][:count].reshape(case["lhs"].shape)
        np.testing.assert_array_equal(y, case["expected_libjit"], err_msg=name)
        ran += 1
    assert ran == 100


def unary(x: Array, words: Case) -> Array:
    """``nmp.rescale`` of all elements."""
    layout = Layout()
    output = layout.reserve(x.size)
    job = {
        "input": layout.put(x),
        "output": output,
        "count": x.size,
        "in_low": -128,
        "in_high": 127,
        **FULL_CLIP,
        **words,
    }
    return run(layout, ("nmp.rescale", job))[at(output) :][: x.size].reshape(x.shape)


def test_rescale(shared: Path) -> None:
    ran = 0
    for name, case in cases(shared, "rescale_quantize_dequantize.npz"):
        if str(case["elem"]) != "i8":
            continue
        words = {
            "in_offset": int(case["src_offset"]),
            "out_offset": int(case["dst_offset"]),
            **checked_scale(case, "", case["src_scale"] / case["dst_scale"], "out"),
        }
        y = unary(case["src"], words)
        np.testing.assert_array_equal(y, case["rescale_libjit"], err_msg=name)
        ran += 1
    assert ran == 20


def pool(case: Case, mnemonic: str, words: Case) -> Array:
    """A pool of each image of the batch: NHWC."""
    x = case["input"]
    channels = x.shape[3]
    sizes = window_sizes(case, padded_image(x, case["pads_tlbr"], 0))
    sizes = {key: sizes[key] for key in sizes if not key.startswith("dilation")}
    pixels = sizes["out_h"] * sizes["out_w"]
    results = []
    for image in x:
        layout = Layout()
        output = layout.reserve(pixels * channels)
        shape = {
            **sizes,
            "input": layout.put(image),
            "output": output,
            "channels": channels,
            "in_h": image.shape[0],
            "in_w": image.shape[1],
            "pad_top": int(case["pads_tlbr"][0]),
            "pad_left": int(case["pads_tlbr"][1]),
            "in_row_stride": image.shape[1] * channels,
            "in_pixel_stride": channels,
            "out_row_stride": sizes["out_w"] * channels,
            "out_pixel_stride": channels,
        }
        spm = run(layout, (mnemonic, {**shape, **words}))
        results.append(spm[at(output) :][: pixels * channels].reshape(sizes["out_h"], -1, channels))
    return np.stack(results)


def test_pools(shared: Path) -> None:
    ran = 0
    for name, case in cases(shared, "pool_relu_i8.npz"):
        y = pool(case, "nmp.maxpool", {"empty_value": int(case["in_offset"])})
        np.testing.assert_array_equal(y, case["expected_maxpool"], err_msg=name)
        ratio = case["in_scale"] / case["avg_out_scale"]
        offsets = {
            "in_offset": int(case["in_offset"]),
            "out_offset": int(case["avg_out_offset"]),
        }
        by_taps = checked_scale(case, "avg_cip0_", ratio, "out")
        y = pool(case, "nmp.avgpool", {**FULL_CLIP, **offsets, **by_taps, "divide": 1})
        np.testing.assert_array_equal(y, case["expected_avgpool_cip0_libjit"], err_msg=name)
        taps = F32(int(np.prod(case["kernels"])))
        scaled = checked_scale(case, "avg_cip1_", ratio / taps, "out")
        y = pool(case, "nmp.avgpool", {**FULL_CLIP, **offsets, **scaled})
        np.testing.assert_array_equal(y, case["expected_avgpool_cip1_libjit"], err_msg=name)
        ran += 1
    assert ran == 36


def test_activations(shared: Path) -> None:
    ran = 0
    for name, case in cases(shared, "pool_relu_i8.npz"):
        x, in_offset = case["input"], int(case["in_offset"])
        words = {
            "in_offset": in_offset,
            "out_offset": int(case["avg_out_offset"]),
            **checked_scale(case, "relu_", case["in_scale"] / case["avg_out_scale"], "out"),
        }
        y = unary(x, {**words, "in_low": in_offset})
        np.testing.assert_array_equal(y, case["expected_relu_libjit"], err_msg=name)
        bounds = {"in_low": int(case["clip_min_q"]), "in_high": int(case["clip_max_q"])}
        y = unary(x, {**words, **bounds})
        np.testing.assert_array_equal(y, case["expected_clip_libjit"], err_msg=name)
        splat = {"in_low": int(case["maxsplat0_value"]), **scale("out")}
        np.testing.assert_array_equal(unary(x, splat), case["expected_maxsplat0"], err_msg=name)
        ran += 1
    assert ran == 36
