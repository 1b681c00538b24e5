"""Weights as the MAC array wants them, by hand."""

from __future__ import annotations

import json

import attrs
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from lir_draft import Draft, int8
from small_programs import compile_draft, convolve, image, out_kind

from nmpsim.bundle import parse_bundle
from nmpsim.bundle.layout import LIR_INDEX
from nmpsim.compiler.driver import compile_module
from nmpsim.compiler.tiling.weighted import compute_zero_terms
from nmpsim.config import default_device
from nmpsim.isa.layouts import count_packed_bytes, pack_weights, unpack_weights


def test_one_channel_is_packed() -> None:
    """[1][1][3][2]: six values of a kernel row, padded to eight; lanes 1 to 15 are empty."""
    weights = np.array([[[[1, 2], [3, 4], [5, 6]]]], np.int8)
    packed = pack_weights(weights)
    assert packed.shape == (2 * 16 * 4,)
    assert packed[:4].tolist() == [1, 2, 3, 4]
    assert packed[64:68].tolist() == [5, 6, 0, 0]
    assert np.count_nonzero(packed) == 6


def test_seventeen_channels_are_packed() -> None:
    """Block, kernel row, quad, lane, value in the quad: channel 16 begins the second block."""
    weights = np.arange(17 * 2 * 1 * 3, dtype=np.int8).reshape(17, 2, 1, 3)
    packed = pack_weights(weights).reshape(2, 2, 1, 16, 4)
    assert packed[0, 0, 0, 0].tolist() == [0, 1, 2, 0]
    assert packed[0, 1, 0, 0].tolist() == [3, 4, 5, 0]
    assert packed[0, 0, 0, 5].tolist() == [30, 31, 32, 0]
    assert packed[1, 1, 0, 0].tolist() == [99, 100, 101, 0]
    assert not packed[1, :, :, 1:].any()


shapes = st.tuples(st.integers(1, 40), st.integers(1, 4), st.integers(1, 4), st.integers(1, 9))


@given(shapes, st.integers(0, 2**32 - 1))
def test_every_weight_has_its_place(shape: tuple[int, int, int, int], seed: int) -> None:
    weights = np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)
    packed = pack_weights(weights)
    _, height, width, depth = shape
    out, height, width, depth = shape
    assert packed.size == count_packed_bytes(out, height, width * depth)
    quads = -(-width * depth // 4)
    blocks = packed.reshape(-1, height, quads, 16, 4)
    for o, y, x, i in np.ndindex(shape):
        quad, place = divmod(x * depth + i, 4)
        assert blocks[o // 16, y, quad, o % 16, place] == weights[o, y, x, i]
    assert packed.astype(np.int64).sum() == weights.astype(np.int64).sum()
    again = np.zeros_like(weights)
    unpack_weights(packed.view(np.uint8), again)
    assert np.array_equal(again, weights)


def test_zero_terms_are_exact() -> None:
    """K*Ow*Ox - Ox*sum(w), with an offset for each channel."""
    weights = np.array([[1, 2, 3], [-128, -128, 127]], np.int8)
    terms = compute_zero_terms(weights, np.array([0, 5]), -7)
    assert terms.tolist() == [7 * 6, -7 * (3 * 5 - (-129))]


def test_tables_of_a_layer_are_packed() -> None:
    """The bundle holds bias less its zero point and the zero term, channel by channel."""
    draft = Draft()
    source = image(draft, channels=3)
    convolve(draft, source, draft.output(out_kind(source, channels=5)))
    module, bundle = draft.module(), compile_draft(draft)
    filter_, bias = (module.constants[w.name] for w in module.weights if w.constant)
    name = f"{module.instructions[0].name}.channels"
    start = bundle.symbols[name] - bundle.image_base
    table = bundle.image[start : start + bundle.symbol_sizes[name]].view(np.int64).reshape(-1, 2)
    sums = filter_.reshape(5, -1).astype(np.int64).sum(axis=1)
    assert table[:, 0].tolist() == bias.tolist()
    assert table[:, 1].tolist() == (3 * (27 * 1 - sums)).tolist()


def test_all_weights_of_a_network_are_stored_once() -> None:
    draft = Draft()
    source = image(draft, 40)
    grouped = draft.buffer(out_kind(source, 40))
    convolve(draft, source, grouped, group=2)
    convolve(draft, grouped, draft.output(out_kind(grouped, 33)))
    module = draft.module()
    small = attrs.evolve(default_device(), scratchpad_bytes=4096, cores_count=3)
    bundle = parse_bundle(compile_module(module, small))
    for name, values in bundle.module().constants.items():
        assert np.array_equal(values, module.constants[name])
    index = json.loads(bytes(bundle.debug[LIR_INDEX]))
    assert [len(one["at"]) > 3 for one in index["packed"]] == [True, True]


def test_constants_are_stored_once() -> None:
    draft = Draft()
    kind = int8((1, 300))
    source = draft.input(kind)
    both = draft.constant(np.arange(300, dtype=np.int16).astype(np.int8).reshape(1, 300), "i8")
    middle = draft.emit("elementadd", draft.buffer(kind), source, both)
    draft.emit("elementmul", draft.output(kind), middle, both)
    bundle = compile_draft(draft)
    assert [n for n in bundle.symbols if n.startswith(both.name)] == [both.name]
    assert bundle.symbol_sizes[both.name] == 300
