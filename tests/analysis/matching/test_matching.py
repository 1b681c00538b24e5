"""Tensors of a run, matched with a reference by names, order and values."""

from __future__ import annotations

import time
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.matching import (
    KnownValues,
    StoredTensor,
    make_stored_tensor,
    match_tensors,
)
from nmpsim.lir.nodes import TensorType, make_quantized_type

RNG = np.random.default_rng(8)
Values = npt.NDArray[Any]


def make_values(*shape: int) -> Values:
    return RNG.normal(size=shape).astype(np.float32)


def quantize(values: Values) -> Values:
    step = float(np.ptp(values)) / 255
    return np.clip(np.rint((values - values.min()) / step) - 128, -128, 127).astype(np.int8)


def make_tensors(**arrays: Values) -> list[StoredTensor]:
    return [make_stored_tensor(name, values) for name, values in arrays.items()]


def match(mine: dict[str, Values], theirs: dict[str, Values], **options: Any) -> dict[str, str]:
    """Return the names of matched tensors in the reference by their names in the run."""
    found = match_tensors(make_tensors(**mine), make_tensors(**theirs), **options)
    return {pair.tensor.name: pair.reference.name for pair in found.pairs}


def make_network(layers: int = 4) -> tuple[dict[str, Values], dict[str, Values]]:
    """Return a quantized run and the convolution, batch norm and ReLU of each layer in float."""
    mine, theirs = {}, {}
    for layer in range(layers):
        conv = make_values(1, 6, 6, 8)
        norm = conv * np.linspace(0.5, 2, 8, dtype=np.float32) + 0.25
        theirs |= {f"c{layer}": conv, f"b{layer}": norm, f"r{layer}": np.maximum(norm, 0)}
        mine[f"layer{layer}"] = quantize(theirs[f"r{layer}"])
    return mine, theirs


def test_layers_match_the_end_of_what_was_folded_into_them() -> None:
    mine, theirs = make_network()
    expected = {f"layer{layer}": f"r{layer}" for layer in range(4)}
    assert match(mine, theirs) == expected
    named = {name.replace("layer", "c"): values for name, values in mine.items()}
    assert match(named, theirs) == {f"c{layer}": f"r{layer}" for layer in range(4)}


def test_a_sum_of_flat_images_is_not_part_of_a_layer() -> None:
    """Most pixels are equal, as in a picture with one color."""
    conv, skip = (np.zeros((1, 2, 32, 32), np.float32) for _ in range(2))
    conv[:, :, :, 5] = RNG.normal(size=(1, 2, 32))
    skip[:, :, :, 5] = RNG.normal(size=(1, 2, 32))
    mine = {"conv": quantize(conv), "add": quantize(conv + skip)}
    assert match(mine, {"conv": conv, "sum": conv + skip})["conv"] == "conv"
    shape = (1, 2, 32, 32)
    unknown = KnownValues(shape, np.empty(0, np.int8))
    layer = StoredTensor("conv", None, True, TensorType("i8", shape), lambda: unknown)
    (pair,) = match_tensors([layer], make_tensors(conv=conv, sum=conv + skip)).pairs
    assert pair.reference.name == "conv"


def test_a_wrong_layer_is_not_paired_with_another_tensor() -> None:
    mine, theirs = make_network()
    wrong = {**mine, "layer1": quantize(theirs["c1"])}  # neither batch norm nor ReLU
    assert match(wrong, theirs)["layer1"] == "r1"
    wrong = {**mine, "layer2": mine["layer1"]}  # the layer copies its input
    assert match(wrong, theirs)["layer2"] == "r2"


def test_ambiguous_tensors_are_not_matched() -> None:
    mine, theirs = make_network()
    few = {name: theirs[name] for name in ("r1", "r3")}
    unknown = {name: np.zeros_like(values) for name, values in mine.items()}
    assert match(unknown, few) == {}
    assert match(mine, few) == {"layer1": "r1", "layer3": "r3"}


def test_permuted_files_are_matched_by_names_or_values() -> None:
    mine, theirs = make_network()
    ends = {f"layer{layer}": theirs[f"r{layer}"] for layer in (2, 0, 3, 1)}
    assert match(mine, ends) == {name: name for name in mine}
    renamed = {name.replace("layer", "x"): values for name, values in ends.items()}
    assert match(mine, renamed) == {f"layer{layer}": f"x{layer}" for layer in range(4)}


def test_layers_match_the_end_of_a_chain_in_a_file_without_order() -> None:
    mine, theirs = make_network(6)
    named = {name.replace("layer", "c"): values for name, values in mine.items()}
    unsorted = {name: theirs[name] for name in RNG.permutation(list(theirs))}
    assert match(named, unsorted) == {f"c{layer}": f"r{layer}" for layer in range(6)}


def test_order_is_no_evidence_for_other_values_in_a_partial_file() -> None:
    mine, theirs = make_network()
    partial = {f"t{index}": theirs[name] for index, name in enumerate(("r0", "c1", "b1", "r2"))}
    assert match(mine, partial) == {"layer0": "t0", "layer2": "t3"}


def test_names_of_the_model_are_used_in_order() -> None:
    one, other = make_values(1, 4, 4, 8), make_values(1, 4, 4, 8)
    mine = make_tensors(add=quantize(one), add__1=quantize(other))
    mine[1] = attrs.evolve(mine[1], source_names=("model/add;add",))
    theirs = make_tensors(**{"x": one, "model/add;add": other})
    found = match_tensors(mine, theirs)
    pairs = {pair.tensor.name: (pair.reference.name, pair.how) for pair in found.pairs}
    assert pairs == {"add__1": ("model/add;add", "name"), "add": ("x", "order")}


def test_one_layout_is_inferred_for_all_tensors() -> None:
    cube, box = make_values(1, 8, 8, 8), make_values(1, 4, 4, 8)
    turned = {"cube": cube.transpose(0, 3, 1, 2), "box": box.transpose(0, 3, 1, 2)}
    mine = make_tensors(cube=cube, box=box)
    assert match_tensors(mine, make_tensors(**turned)).layout == "nchw"
    assert match_tensors(mine, make_tensors(cube=cube, box=box)).layout == "same"
    assert match_tensors(mine, make_tensors(**turned), layout="same").layout == "same"


def test_layers_of_branches_are_not_matched_by_order_alone() -> None:
    """A reference may compute the branches of a network in another order."""
    values = {name: make_values(1, 4, 4, 8) for name in ("stem", "left", "right", "sum")}
    inputs = {"stem": (), "left": ("stem",), "right": ("stem",), "sum": ("left", "right")}
    theirs = make_tensors(
        **{f"t{index}": values[name] for index, name in enumerate(("stem", "right", "left", "sum"))}
    )
    unknown = KnownValues((1, 4, 4, 8), np.empty(0, np.int8))
    for is_known, expected in (
        (False, {"stem": "t0", "sum": "t3"}),
        (True, {"stem": "t0", "left": "t2", "right": "t1", "sum": "t3"}),
    ):
        mine = [
            attrs.evolve(
                make_stored_tensor(name, quantize(array)),
                inputs=inputs[name],
                **({} if is_known else {"load": lambda: unknown}),
            )
            for name, array in values.items()
        ]
        found = match_tensors(mine, theirs)
        assert {pair.tensor.name: pair.reference.name for pair in found.pairs} == expected


def test_a_name_that_contradicts_the_order_is_reported() -> None:
    arrays = {f"layer{index}": make_values(1, 4, 4, 8) for index in range(12)}
    mine = {name: quantize(values) for name, values in arrays.items()}
    values = [*list(arrays.values())[:10], arrays["layer0"], arrays["layer10"]]
    renamed = dict(zip(arrays, values, strict=True))
    moved = {"layer11": renamed.pop("layer11"), **renamed}
    found = match_tensors(make_tensors(**mine), make_tensors(**moved))
    assert [pair.tensor.name for pair in found.pairs if pair.is_out_of_order] == ["layer11"]
    assert "; layer11 of the reference not in the run's order" in found.describe_coverage()


def test_a_partial_reference_leaves_other_layers_unmatched() -> None:
    mine, theirs = make_network(6)
    names = {f"layer{layer}": theirs[f"r{layer}"] for layer in (0, 2, 5)}
    interior = {"norm1": theirs["b1"], "conv3": theirs["c3"]}
    assert match(mine, {**names, **interior}) == {name: name for name in names}


def test_transposes_of_the_program_do_not_decide_the_layout() -> None:
    pool = make_values(1, 8, 4, 4)
    mine = make_tensors(conv=make_values(1, 4, 4, 4), pool=pool.transpose(0, 2, 3, 1), plain=pool)
    mine[2] = attrs.evolve(mine[2], opcode="transpose")
    theirs = make_tensors(t0=mine[0].load().array.reshape(1, 4, 4, 4), t1=pool)
    assert match_tensors(mine, theirs).layout == "nchw"


def test_values_decide_the_layout_of_cubes() -> None:
    mine = {name: make_values(1, 6, 6, 6) for name in ("one", "other")}
    turned = {name: values.transpose(0, 3, 1, 2) for name, values in mine.items()}
    assert match_tensors(make_tensors(**mine), make_tensors(**turned)).layout == "nchw"
    assert match_tensors(make_tensors(**mine), make_tensors(**mine)).layout == "same"
    one = {"one": turned["one"]}
    assert match_tensors(make_tensors(**mine), make_tensors(**one)).layout == "same"


def test_large_files_are_matched_in_short_time() -> None:
    mine = {f"a{index}/Relu": np.zeros((1, 2, 2, 4), np.int8) for index in range(100)}
    theirs = {f"b{index}/Relu": np.zeros((1, 2, 2, 4), np.int8) for index in range(2000)}
    start = time.process_time()
    assert match(mine, theirs) == {}
    assert time.process_time() - start < 10


def test_the_parts_of_a_concatenation_are_not_in_a_reference() -> None:
    """The first part may have the name of the result; the last part completes the result."""
    names = "left", "right", "both", "both__1"
    values = {name: make_values(1, 4, 4, 8 if "both" in name else 4) for name in names}
    mine = [
        attrs.evolve(one, is_partial=one.name == "both", source_names=("both",))
        if "both" in one.name
        else one
        for one in make_tensors(**values)
    ]
    chosen = {"left": values["left"], "right": values["right"], "both": values["both__1"]}
    for theirs in (chosen, {f"t{index}": one for index, one in enumerate(chosen.values())}):
        found = match_tensors(mine, make_tensors(**theirs))
        pairs = {pair.tensor.name: pair.reference.name for pair in found.pairs}
        assert list(pairs) == ["left", "right", "both__1"]
        assert list(pairs.values()) == list(theirs)


def test_results_that_are_exchangeable_match_after_the_others_match_by_values() -> None:
    values = {name: make_values(1, 4, 4, 8) for name in ("stem", "left", "right")}
    inputs = {"stem": (), "left": ("stem",), "right": ("stem",)}
    wrong = {**values, "left": make_values(1, 4, 4, 8)}
    mine = [attrs.evolve(one, inputs=inputs[one.name]) for one in make_tensors(**wrong)]
    theirs = make_tensors(**{f"t{index}": one for index, one in enumerate(values.values())})
    found = match_tensors(mine, theirs)
    assert [pair.how for pair in found.pairs] == ["order", "order", "order"]


def test_a_float_tensor_before_an_activation_is_no_result_of_a_layer() -> None:
    """The next layer is right, so the layer is right too, and the reference has another tensor."""
    inner, after = make_values(1, 8, 8, 8), make_values(1, 8, 8, 4)
    scales = np.array([9, -1, 1, 0.5, 1, 1, -1, 1], np.float32)
    first, second = make_tensors(conv=quantize(inner * scales), next=quantize(after))
    mine = [attrs.evolve(first, inputs=()), attrs.evolve(second, inputs=("conv",))]
    found = match_tensors(mine, make_tensors(conv=inner, next=after))
    assert [pair.tensor.name for pair in found.pairs] == ["next"]
    assert [one.name for one in found.unmatched] == ["conv"]
    right = match_tensors(mine, make_tensors(conv=inner * scales, next=after))
    assert [pair.tensor.name for pair in right.pairs] == ["conv", "next"]


def test_tensors_inside_a_layer_are_not_matched_by_values() -> None:
    """Batch norms and activations that change few values are recognized by real values."""
    inner, after = np.abs(make_values(1, 8, 8, 8)) + 0.05, make_values(1, 8, 8, 4)
    norm = inner + np.linspace(0, 0.6, 8, dtype=np.float32)
    wide = inner - 0.15  # nearly all values are positive
    for result, other in ((norm, inner), (np.maximum(wide, 0), wide)):
        step = float(result.max()) / 255
        layer = make_stored_tensor("conv", np.rint(result / step - 128).astype(np.int8))
        quantization = make_quantized_type("i8", (), step, -128).quant
        mine = [
            attrs.evolve(layer, inputs=(), quantization=quantization),
            attrs.evolve(make_stored_tensor("next", quantize(after)), inputs=("conv",)),
        ]
        for reference, expected in ((result, {"conv", "next"}), (other, {"next"})):
            found = match_tensors(mine, make_tensors(a=reference, b=after))
            assert {pair.tensor.name for pair in found.pairs} == expected


def test_a_kind_of_operation_is_no_common_ending() -> None:
    mine = {"a/one/Conv": make_values(1, 4, 4, 8), "a/two/Add": make_values(1, 4, 4, 8)}
    theirs = {"a/two/Add": mine["a/two/Add"], "a/three/Conv": make_values(1, 4, 4, 8)}
    assert match(mine, theirs) == {"a/two/Add": "a/two/Add"}
    assert match(mine, {"Conv": mine["a/one/Conv"]}) == {"a/one/Conv": "Conv"}
