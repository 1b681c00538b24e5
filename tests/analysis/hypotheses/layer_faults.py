"""Faults planted in small networks, and the descriptions that name each fault.

Run this file to repeat the campaign: ``python -m tests.analysis.hypotheses.layer_faults SEED N``.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from layer_networks import CONFIG, STRUCTURES, Array, Network, Rng, add_activation, make_network
from lir_draft import Ref, tensor_type

from nmpsim.analysis.hypotheses import HypothesisResults, search_hypotheses
from nmpsim.core.run import make_layer_key
from nmpsim.diagnostics import UserError
from nmpsim.session import Device

CONVS = tuple(one for one in STRUCTURES if one.startswith(("conv", "grouped", "channel", "depth")))
WEIGHTED = (*CONVS, "fc", "fc int16", "rowwise")
INT8 = tuple(one for one in WEIGHTED if "int16" not in one)
WINDOWS = (*CONVS, "maxpool", "avgpool")
UNGROUPED = tuple(one for one in CONVS if "grouped" not in one and one != "depthwise")
CHANNELWISE = ("channelwise", "channelwise grouped", "depthwise")
INT8_RESULT = tuple(one for one in INT8 if one != "conv relu")
ONE_RESULT = tuple(one for one in WEIGHTED if one != "conv relu")
"""Structures in which one tensor has the type of the result."""


# --- faults -----------------------------------------------------------------------------------


@attrs.frozen
class Fault:
    """Fault: the structures that can have it, how it is planted, and texts that name it."""

    structures: tuple[str, ...]
    plant: Callable[[Network, Rng], Network]
    text: str
    """Regular expression of an explanation that names the fault; empty if none may be named."""
    only_in_reference: bool = False


def _weights_fault(change: Callable[[Array, Rng], Array]) -> Callable[[Network, Rng], Network]:
    return lambda net, rng: net.with_constants(
        **{net.name(2): np.ascontiguousarray(change(net.constant(2), rng))}
    )


def _bias_fault(change: Callable[[Array, Rng], Array]) -> Callable[[Network, Rng], Network]:
    def plant(net: Network, rng: Rng) -> Network:
        bias = net.constant(3)
        return net.with_constants(
            **{net.name(3): change(bias.astype(np.int64), rng).astype(bias.dtype)}
        )

    return plant


def _offset_fault(index: int, change: Callable[[int], int]) -> Callable[[Network, Rng], Network]:
    def plant(net: Network, rng: Rng) -> Network:
        name = net.name(index)
        type = (
            next(o.type for o in net.module.weights if o.name == name)
            if any(o.name == name for o in net.module.weights)
            else next(o.attributes["Ty"] for o in net.module.instructions if o.name == name)
        )
        return net.with_type(name, 1.0, change(type.quant.offset))

    return plant


def _table_fault(index: int, also: int | None = None) -> Callable[[Network, Rng], Network]:
    def plant(net: Network, rng: Rng) -> Network:
        factor = np.ones(net.constant(index).shape, np.float32)
        factor[int(rng.integers(factor.size))] = rng.choice([0.5, 1.37, 0.7])
        places = [index] if also is None else [index, also]
        return net.with_constants(**{net.name(i): net.constant(i) * factor for i in places})

    return plant


def _swap_pads(net: Network, rng: Rng) -> Network:
    top, left, bottom, right = net.operation.attributes["Pads"]
    return net.with_attributes(Pads=(bottom, right, top, left))


def _shift_pads(net: Network, rng: Rng) -> Network:
    top, left, bottom, right = net.operation.attributes["Pads"]
    return net.with_attributes(
        Pads=(top + bottom, left, 0, right) if bottom else (0, left, top, right)
    )


def _relu(net: Network, rng: Rng) -> Network:
    return add_activation(net, Ref(net.name(0), None, "output"))  # type: ignore[arg-type]


def _stale(net: Network, rng: Rng) -> Network:
    first, target, *others = net.operation.operands
    stale = attrs.evolve(target, name=next(iter(net.inputs)))
    return net.with_operation(operands=(first, stale, *others))


def _swapped(net: Network, rng: Rng) -> Network:
    first, a, b = net.operation.operands
    return net.with_operation(operands=(first, b, a))


def _with_window(net: Network, **changes: Any) -> Network:
    """Return a network with another window and the padding that keeps the result's size."""
    attributes = {**net.operation.attributes, **changes}
    pads = list(attributes["Pads"])
    shapes = {one.name: one.type.shape for one in net.module.weights}
    shapes |= {one.name: one.attributes["Ty"].shape for one in net.module.instructions
               if "Ty" in one.attributes}  # fmt: skip
    target, source = (shapes[net.name(index)] for index in (0, 1))
    for axis in range(2):
        dilation = attributes.get("Dilation", (1, 1))[axis]
        span = (attributes["Kernels"][axis] - 1) * dilation + 1
        length = (target[axis + 1] - 1) * attributes["Strides"][axis] + span
        pads[axis + 2] = length - source[axis + 1] - pads[axis]
    return net if min(pads) < 0 else net.with_attributes(**changes, Pads=tuple(pads))


def _double_dilation(net: Network, rng: Rng) -> Network:
    dilation = tuple(2 * one for one in net.operation.attributes["Dilation"])
    kernel, pads = net.operation.attributes["Kernels"], net.operation.attributes["Pads"]
    before = [pad * 2 for pad in pads[:2]]
    changed = net.with_attributes(Pads=(*before, *pads[2:])) if max(kernel) == 3 else net
    return _with_window(changed, Dilation=dilation)


def _pad_with_another_value(net: Network, rng: Rng) -> Network:
    """Return a network whose inputs contain the padding."""
    pads = net.operation.attributes["Pads"]
    name = next(iter(net.inputs))
    kind = next(one.type for one in net.module.weights if one.name == name)
    offset = kind.quant.offset
    limits = np.iinfo(kind.dtype)
    values = (0, limits.min, limits.max, offset + 1, int(rng.integers(limits.min, limits.max)))
    value = int(rng.choice([v for v in values if v != offset]))
    around = ((0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0))
    inputs = {n: np.pad(x, around, constant_values=value) for n, x in net.inputs.items()}
    changed = tensor_type(kind.elem, inputs[name].shape, kind.quant.scale, offset)
    return net.with_attributes(Pads=(0, 0, 0, 0)).with_input_type(changed, inputs)


def _input_fault(change: Callable[[Array, Rng], Array]) -> Callable[[Network, Rng], Network]:
    """Return a function that replaces the input of the layer under test."""

    def plant(net: Network, rng: Rng) -> Network:
        first, second = list(net.inputs)[:2]
        values = change(np.maximum(net.inputs[first], net.inputs[second]), rng)
        return attrs.evolve(net, inputs={**net.inputs, first: values, second: values})

    return plant


def _permute(values: Array, axis: int, rng: Rng) -> Array:
    return np.take(values, rng.permutation(values.shape[axis]), axis)


def _swap(values: Array, axis: int, rng: Rng) -> Array:
    """Return values with two channels swapped."""
    order = np.arange(values.shape[axis])
    pair = rng.choice(order.size, 2, replace=False)
    order[pair] = order[pair[::-1]]
    return np.take(values, order, axis)


def _permute_outputs(net: Network, rng: Rng) -> Network:
    """Return a network with the output channels of all constants in another order."""
    axis = 1 if net.operation.opcode == "fullyconnected" else 0
    order = rng.permutation(net.constant(3).size)
    count = len(net.operation.operands)
    tables = {net.name(i): net.constant(i)[order] for i in range(3, count)}
    return net.with_constants(**{net.name(2): np.take(net.constant(2), order, axis)}, **tables)


def _change_weights(count: int) -> Callable[[Network, Rng], Network]:
    """Return a function that replaces a few weights."""

    def plant(net: Network, rng: Rng) -> Network:
        weights = net.constant(2).copy()
        limits = np.iinfo(weights.dtype)
        for index in rng.choice(weights.size, count, replace=False):
            old = int(weights.flat[index])
            weights.flat[index] = -old if abs(old) > limits.max // 4 else limits.max - abs(old)
        return net.with_constants(**{net.name(2): weights})

    return plant


def _zero_channel(net: Network, rng: Rng) -> Network:
    """Return a network whose first output channel has weights equal to their zero point."""
    weights = net.constant(2).copy()
    kind = next(one.type for one in net.module.weights if one.name == net.name(2))
    channel = (slice(None), 0) if net.operation.opcode == "fullyconnected" else 0
    weights[channel] = kind.quant.offset if kind.quant else 0
    return net.with_constants(**{net.name(2): weights})


def _swap_types(net: Network, *, swaps_scales: bool) -> Network:
    """Return a network with the scales or the zero points of the first two inputs swapped."""
    types = {one.name: one.type for one in net.module.weights}
    types |= {
        one.name: one.attributes["Ty"] for one in net.module.instructions if "Ty" in one.attributes
    }
    first, second = (types[net.name(index)].quant for index in (1, 2))
    if not swaps_scales:
        changed = net.with_type(net.name(1), offset=second.offset)
        return changed.with_type(net.name(2), offset=first.offset)
    changed = net.with_type(net.name(1), second.scale / first.scale)
    return changed.with_type(net.name(2), first.scale / second.scale)


def _move_part(net: Network, rng: Rng) -> Network:
    offsets = net.operation.attributes["Offsets"]
    return net.with_attributes(Offsets=(*offsets[:3], offsets[3] - int(rng.integers(1, 3))))


def _random_weights(net: Network, rng: Rng) -> Network:
    weights = net.constant(2)
    return net.with_constants(
        **{net.name(2): rng.permutation(weights.reshape(-1)).reshape(weights.shape)}
    )


FAULTS: dict[str, Fault] = {
    "strides": Fault(
        WINDOWS,
        lambda n, r: _with_window(
            n, Strides=tuple(3 - s for s in n.operation.attributes["Strides"])
        ),
        "strides",
    ),
    "one stride": Fault(
        WINDOWS,
        lambda n, r: _with_window(n, Strides=(2, n.operation.attributes["Strides"][1])),
        "strides",
    ),
    "dilation": Fault(CONVS, _double_dilation, "dilation"),
    "padding value": Fault(
        CONVS, _pad_with_another_value, "as padding|padding value", only_in_reference=True
    ),
    "input unsigned": Fault(
        WEIGHTED,
        _input_fault(lambda x, r: x ^ np.iinfo(x.dtype).min),
        "the input as uint",
        only_in_reference=True,
    ),
    "input channels permuted": Fault(
        WEIGHTED,
        _input_fault(lambda x, r: _permute(x, -1, r)),
        "channels",
        only_in_reference=True,
    ),
    "input channels swapped": Fault(
        WEIGHTED,
        _input_fault(lambda x, r: _swap(x, -1, r)),
        "channels",
        only_in_reference=True,
    ),
    "input NCHW": Fault(
        CONVS,
        _input_fault(lambda x, r: np.ascontiguousarray(x.transpose(0, 3, 1, 2)).reshape(x.shape)),
        "NCHW|NHWC",
        only_in_reference=True,
    ),
    "weights' inputs permuted": Fault(
        (*UNGROUPED, "rowwise"),
        _weights_fault(lambda w, r: _permute(w, -1, r)),
        "channels|weights' inputs",
    ),
    "weights' inputs swapped": Fault(
        (*UNGROUPED, "rowwise"),
        _weights_fault(lambda w, r: _swap(w, -1, r)),
        "channels|weights",
    ),
    "weights' outputs permuted": Fault(
        (*CONVS, "rowwise"), _weights_fault(lambda w, r: _permute(w, 0, r)), "output channels"
    ),
    "weights' outputs swapped": Fault(
        (*CONVS, "rowwise"), _weights_fault(lambda w, r: _swap(w, 0, r)), "output channels|weights"
    ),
    "outputs permuted": Fault((*UNGROUPED, "fc", "rowwise"), _permute_outputs, "channels"),
    "bias permuted": Fault(WEIGHTED, _bias_fault(lambda b, r: _permute(b, 0, r)), "bias"),
    "scales permuted": Fault(
        (*CHANNELWISE, "rowwise"),
        lambda n, r: n.with_constants(**{n.name(4): _permute(n.constant(4), 0, r)}),
        "scale",
    ),
    "one weight": Fault(WEIGHTED, _change_weights(1), "weight"),
    "three weights": Fault(WEIGHTED, _change_weights(3), "weight"),
    "ReLU6": Fault(
        ("conv", "channelwise", "add", "fc"),
        lambda n, r: add_activation(
            n,
            Ref(n.name(0), None, "output"),
            "clip",
            Min=0.0,
            Max=6.0,  # type: ignore[arg-type]
        ),
        "ReLU|no activation",
    ),
    "offset of a part": Fault(("concat",), _move_part, "offset"),
    "random weights": Fault(WEIGHTED, _random_weights, ""),
    "kernel transposed": Fault(
        CONVS,
        _weights_fault(lambda w, r: w.transpose(0, 2, 1, 3) if w.shape[1] == w.shape[2] else w),
        "axes swapped",
    ),
    "kernel flipped": Fault(
        CONVS, _weights_fault(lambda w, r: w[:, ::-1]), "flipped vertically|rows moved"
    ),
    "kernel rotated": Fault(CONVS, _weights_fault(lambda w, r: w[:, ::-1, ::-1]), "180"),
    "O and I swapped": Fault(
        UNGROUPED,
        _weights_fault(lambda w, r: w.transpose(3, 1, 2, 0).reshape(w.shape)),
        "IHWO|input and output channels swapped",
    ),
    "O and I swapped in a matrix": Fault(
        ("fc", "rowwise"), _weights_fault(lambda w, r: w.T.reshape(w.shape)), "memory in the order"
    ),
    "HWIO": Fault(
        UNGROUPED,
        _weights_fault(lambda w, r: w.transpose(1, 2, 3, 0).reshape(w.shape)),
        "HWIO",
    ),
    "inputs rolled": Fault(
        (*UNGROUPED, "rowwise"),
        _weights_fault(lambda w, r: np.roll(w, 1, -1)),
        "channels moved by 1|input channels",
    ),
    "inputs reversed": Fault(
        (*UNGROUPED, "rowwise"),
        _weights_fault(lambda w, r: w[..., ::-1]),
        "input channels in reverse|channels in reverse order",
    ),
    "outputs rolled": Fault(
        CONVS, _weights_fault(lambda w, r: np.roll(w, 1, 0)), "output channels moved"
    ),
    "bias zero": Fault(
        WEIGHTED, _bias_fault(lambda b, r: 0 * b), "a bias of zero|which is zero here"
    ),
    "bias doubled": Fault(
        WEIGHTED, _bias_fault(lambda b, r: 2 * b), "bias doubled|half of the bias"
    ),
    "bias of 8 bits": Fault(
        WEIGHTED, _bias_fault(lambda b, r: b.astype(np.int8)), "truncated to 8|another bias"
    ),
    "bias scaled": Fault(WEIGHTED, _bias_fault(lambda b, r: b * 8), r"2\^3|2\^-3|another bias"),
    "one bias": Fault(
        WEIGHTED,
        _bias_fault(lambda b, r: b + 7000 * (np.arange(b.size) == r.integers(b.size))),
        "another bias in 1 ",
    ),
    "input zero point +1": Fault(
        (*INT8, "add"), _offset_fault(1, lambda o: o + 1), "zero point .*of the (first )?input"
    ),
    "input zero point 0": Fault(
        (*INT8, "add"), _offset_fault(1, lambda o: 0), "zero point .*of the (first )?input"
    ),
    "zero channel": Fault(WEIGHTED, _zero_channel, "of zero in", only_in_reference=True),
    "bias on another scale": Fault(
        WEIGHTED, _bias_fault(lambda b, r: np.rint(b * 0.37)), "the factor of the bias|times 2"
    ),
    "weights zero point +1": Fault(
        ("conv", "fc"), _offset_fault(2, lambda o: o + 1), "zero point.* of the weights"
    ),
    "weights zero point 0": Fault(
        ("conv", "fc"), _offset_fault(2, lambda o: 0), "zero point.* of the weights"
    ),
    "weights unsigned": Fault(
        WEIGHTED, _weights_fault(lambda w, r: w ^ np.iinfo(w.dtype).min), "the weights as uint"
    ),
    "result zero point -1": Fault(
        (*INT8, "add"), _offset_fault(0, lambda o: o - 1), "zero point .*of the result"
    ),
    "result zero point 9": Fault(
        (*INT8_RESULT, "add"),
        _offset_fault(0, lambda o: o + 9),
        "zero point .*of the result",
    ),
    "padding on the other side": Fault(
        WINDOWS, _swap_pads, "padding on the other side|padding \\d"
    ),
    "padding on one side": Fault(WINDOWS, _shift_pads, "padding"),
    "ReLU missing or extra": Fault(("conv", "channelwise", "add"), _relu, "ReLU|no activation"),
    "channel scale": Fault(CHANNELWISE, _table_fault(4), "scale of the weights in 1 "),
    "row scale": Fault(("rowwise",), _table_fault(4), "scale of the weights in 1 "),
    "channel scales": Fault(CHANNELWISE, _table_fault(4, 6), "scale of weights and bias in 1 "),
    "result scale": Fault(
        ONE_RESULT, lambda n, r: n.with_type(n.name(0), 1.3), "scale of the result"
    ),
    "input scale": Fault(
        ("add",), lambda n, r: n.with_type(n.name(2), 1.3), "scale of the second input"
    ),
    "stale input": Fault(tuple(STRUCTURES), _stale, "input__1|buffer__3 as the"),
    "swapped zero points": Fault(
        ("add",), lambda n, r: _swap_types(n, swaps_scales=False), "zero points of the two inputs"
    ),
    "swapped scales": Fault(
        ("add",), lambda n, r: _swap_types(n, swaps_scales=True), "scales of the two inputs"
    ),
    "swapped inputs": Fault(("add",), _swapped, "two inputs swapped"),
    "numerics": Fault(
        WEIGHTED,
        lambda n, r: attrs.evolve(n, numerics="q31" if n.numerics != "q31" else "glow-int"),
        "arithmetic",
    ),
    "counts padding": Fault(
        ("avgpool",), lambda n, r: n.with_attributes(CountIncludePads=1), "counted in the mean"
    ),
    "maximum for mean": Fault(
        ("avgpool",),
        lambda n, r: n.with_operation(
            opcode="maxpool",
            attributes={k: v for k, v in n.operation.attributes.items() if k != "CountIncludePads"},
        ),
        "maximum",
    ),
    "subtraction": Fault(
        ("add",), lambda n, r: n.with_operation(opcode="elementsub"), "elementadd|elementsub"
    ),
}


SIMPLE = (
    "kernel transposed", "kernel flipped", "bias zero", "bias doubled", "one bias",
    "input zero point +1", "result zero point -1", "inputs reversed", "padding on the other side",
    "channel scale", "result scale", "weights unsigned", "ReLU missing or extra", "stale input",
    "one weight", "outputs permuted", "dilation", "input scale",
)  # fmt: skip
"""Faults of which two are planted together."""


def draw_pair(rng: Rng) -> Fault:
    """Return the combination of two different faults that a structure can have."""
    while True:
        first, second = (FAULTS[str(one)] for one in rng.choice(SIMPLE, 2, replace=False))
        common = tuple(one for one in first.structures if one in second.structures)
        if common:
            break

    def plant(network: Network, rng: Rng) -> Network:
        return second.plant(first.plant(network, rng), rng)

    return Fault(common, plant, f"(?=.*({first.text}))(?=.*({second.text}))")


@attrs.frozen
class Trial:
    """Result of a search for a planted fault."""

    results: HypothesisResults
    is_named: bool
    false_causes: tuple[str, ...]


def try_fault(
    network: Network, fault: Fault, rng: Rng, device: Device, in_program: bool
) -> Trial | None:
    """Plant a fault in the program or in the reference and search for it.

    Returns None if the fault changes no result.
    """
    try:
        faulty = fault.plant(network, rng)
        bundles = network.compile(), faulty.compile()
    except UserError:
        return None
    if fault.only_in_reference and in_program:
        return None
    outputs = [
        device.run(bundle, one.inputs, save_layers=True).layer_outputs
        for bundle, one in zip(bundles, (network, faulty), strict=True)
    ]
    right, wrong = (list(one.values())[-1] for one in outputs)
    if np.array_equal(right, wrong):
        return None
    program, reference = (bundles[1], 0) if in_program else (bundles[0], 1)
    index = len(program.metadata.layers) - 1
    key = make_layer_key(program.metadata.layers[index])
    known = outputs[0 if fault.only_in_reference else reference]
    before = {
        make_layer_key(layer): known[k]
        for layer, k in zip(program.metadata.layers[:-1], known, strict=False)
    }
    expected = list(outputs[reference].values())[-1]
    results = search_hypotheses(
        program, index, network.inputs, {**before, key: expected}, expected, device=device
    )
    texts = [one.text for one in results.explanations]
    named = [text for text in texts if fault.text and re.search(fault.text, text)]
    is_named = bool(named) if fault.text else not texts
    return Trial(results, is_named, tuple(text for text in texts if text not in named))


def main() -> None:
    """Run a campaign and print the share of named faults by kind, and false causes."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    everything = {**FAULTS, "two faults": FAULTS["one weight"]}
    chosen = {name: everything[name] for name in sys.argv[3:]} or everything
    device = Device(CONFIG)
    totals: Counter[str] = Counter()
    named: Counter[str] = Counter()
    others: list[str] = []
    for seed in range(first, first + count):
        for name, fault in chosen.items():
            rng = np.random.default_rng([seed, *name.encode()])
            fault = draw_pair(rng) if name == "two faults" else fault
            structure = str(rng.choice(list(fault.structures)))
            numerics = str(rng.choice(["glow-int", "q31", "glow-float"]))
            in_program = bool(rng.integers(2)) and not fault.only_in_reference
            try:
                network = make_network(structure, rng, numerics)
                trial = try_fault(network, fault, rng, device, in_program)
            except UserError as error:
                print(seed, name, structure, numerics, error.diagnostics[0].message)
                continue
            if trial is None:
                continue
            totals[name] += 1
            named[name] += trial.is_named
            side = "program" if in_program else "reference"
            where = f"{seed} {name}, {structure}, {numerics}, {side}"
            if not trial.is_named:
                tried = sum(trial.results.tried.values())
                others.append(
                    f"NOT NAMED {where}: tried {tried} {trial.results.problem} {trial.false_causes}"
                    f"{fault.text if name == 'two faults' else ''}"
                )
            elif trial.false_causes:
                others.append(f"also {where}: {trial.false_causes}")
    for name in totals:
        print(f"{named[name]:4} of {totals[name]:4}  {name}")
    print(f"{sum(named.values())} of {sum(totals.values())} named")
    print("\n".join(others))


if __name__ == "__main__":
    main()
