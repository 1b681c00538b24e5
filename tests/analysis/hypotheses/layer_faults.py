"""Small networks, faults planted in them, and the descriptions that name each fault.

Run this file to repeat the campaign: ``python -m tests.analysis.hypotheses.layer_faults SEED N``.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "compiler"))
from lir_draft import Draft, Ref, int8, tensor_type

import nmpsim
from nmpsim.analysis.hypotheses import HypothesisResults, search_hypotheses
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.core.device import Device
from nmpsim.core.run import make_layer_key
from nmpsim.diagnostics import UserError
from nmpsim.interpreter import dequantize, execute_real
from nmpsim.lir.nodes import Instruction, Module
from nmpsim.lir.verify import verify

Array = np.ndarray[Any, Any]
Rng = np.random.Generator
CONFIG = attrs.evolve(nmpsim.default_device(), cores_count=2)


@attrs.frozen(eq=False)
class Network:
    """Network whose second layer gets a fault, with inputs."""

    module: Module
    inputs: Mapping[str, Array]
    numerics: str
    layer: str
    """Name of the instruction of the layer."""

    @property
    def operation(self) -> Instruction:
        return next(one for one in self.module.instructions if one.name == self.layer)

    def name(self, index: int) -> str:
        """Return the name of an operand of the layer."""
        return self.operation.operands[index].name

    def constant(self, index: int) -> Array:
        return self.module.constants[self.name(index)]

    def with_constants(self, **values: Array) -> Network:
        constants = {**self.module.constants, **values}
        return self._evolve(constants=constants)

    def with_operation(self, **changes: Any) -> Network:
        return self._evolve(
            instructions=tuple(
                attrs.evolve(one, **changes) if one.name == self.layer else one
                for one in self.module.instructions
            )
        )

    def with_attributes(self, **attributes: Any) -> Network:
        return self.with_operation(attributes={**self.operation.attributes, **attributes})

    def with_type(self, name: str, scale: float = 1.0, offset: int | None = None) -> Network:
        """Return a network with a tensor's scale multiplied and its zero point replaced."""

        def change(type: Any) -> Any:
            new = type.quant.offset if offset is None else offset
            return tensor_type(type.elem, type.shape, type.quant.scale * scale, new)

        weights = tuple(
            attrs.evolve(one, type=change(one.type)) if one.name == name else one
            for one in self.module.weights
        )
        instructions = tuple(
            attrs.evolve(one, attributes={**one.attributes, "Ty": change(one.attributes["Ty"])})
            if one.name == name
            else one
            for one in self.module.instructions
        )
        return self._evolve(weights=weights, instructions=instructions)

    def without_instruction(self, opcode: str) -> Network:
        """Return a network in which an activation is a view of its input."""
        (clip,) = (one for one in self.module.instructions if one.opcode == opcode)
        target, source = (one.name for one in clip.operands)
        instructions = [
            attrs.evolve(
                one,
                operands=tuple(
                    attrs.evolve(o, name=target) if o.name == source else o for o in one.operands
                ),
            )
            for one in self.module.instructions
            if one is not clip and one.name != source
        ]
        return self._evolve(
            instructions=tuple(attrs.evolve(o, number=n) for n, o in enumerate(instructions))
        )

    def _evolve(self, **changes: Any) -> Network:
        return attrs.evolve(self, module=attrs.evolve(self.module, **changes))

    def compile(self) -> Bundle:
        verify(self.module)
        return parse_bundle(compile_module(self.module, CONFIG, numerics=self.numerics))


# --- networks ---------------------------------------------------------------------------------


def make_network(structure: str, rng: Rng, numerics: str = "glow-int") -> Network:
    """Return a random network: the maximum of two inputs, then a layer of a structure."""
    draft = Draft()
    height, width = (int(rng.integers(5, 10)) for _ in range(2))
    channels = int(rng.choice([3, 4, 8]))
    shape = (1, height, width, channels)
    is_symmetric = numerics in ("q31", "onnx") and structure != "add"
    offset = int(rng.integers(-20, 20))
    kind = int8(shape, float(rng.uniform(0.01, 0.05)), offset)
    if structure in ("fc", "rowwise"):
        kind = int8((6, 24), float(rng.uniform(0.01, 0.05)), offset)
    left, right = draft.input(kind), draft.input(kind)
    source = draft.emit("elementmax", draft.buffer(kind), left, right)
    build = _STRUCTURES[structure]
    result = build(draft, source, rng, is_symmetric)
    name = draft.instructions[-1].name
    module = draft.module()
    inputs = {
        name: np.clip(rng.normal(offset, 45, kind.shape), -128, 127).astype(np.int8)
        for name in draft.inputs
    }
    network = Network(module, inputs, numerics, name)
    network = _fit_scale(network, result)
    if structure.endswith("relu"):
        network = _add_relu(network, result)
    return network


def _fit_scale(network: Network, result: Ref) -> Network:
    """Return a network whose result uses most of its type."""
    if network.operation.opcode == "maxpool":
        return network
    types = {one.name: one.type for one in network.module.weights}
    reals = {name: dequantize(array, types[name]) for name, array in network.inputs.items()}
    real = list(execute_real(network.module, reals))[-1][2]
    spread = 2.2 * float(np.std(real))
    return network.with_type(
        result.name, spread / 100 / 0.5, int(np.clip(-real.mean() / (spread / 100), -90, 90))
    )


def _add_relu(network: Network, result: Ref) -> Network:
    """Return a network with a ReLU as last instruction."""
    type = next(one.type for one in network.module.weights if one.name == result.name)
    draft = Draft()
    draft.weights = list(network.module.weights)
    draft.instructions = list(network.module.instructions)
    draft.constants = dict(network.module.constants)
    draft._names = 100
    last = draft.output(type)
    before = draft.buffer(type)
    draft.weights = [one for one in draft.weights if one.name != result.name]
    old = draft.instructions.pop(-2)
    buffer = draft.instructions.pop(-1)
    first = attrs.evolve(old.operands[0], name=before.name)
    draft.instructions += [
        attrs.evolve(buffer, number=old.number),
        attrs.evolve(old, number=old.number + 1, operands=(first, *old.operands[1:])),
    ]
    draft.emit("relu", last, before)
    return attrs.evolve(network, module=draft.module())


def _pick_window(
    rng: Rng, shape: tuple[int, ...], largest: int = 3
) -> tuple[dict[str, Any], tuple[int, int]]:
    kernel = tuple(int(rng.integers(2, largest + 1)) for _ in range(2))
    if rng.random() < 0.6:
        kernel = (3, 3)
    strides = tuple(int(rng.choice([1, 2])) for _ in range(2))
    pads = []
    for size, k, s in zip(shape[1:3], kernel, strides, strict=True):
        total = max((-(-size // s) - 1) * s + k - size, 0)
        pads.append((total // 2, total - total // 2))
    attributes = {
        "Kernels": kernel,
        "Strides": strides,
        "Pads": (pads[0][0], pads[1][0], pads[0][1], pads[1][1]),
    }
    out = tuple(
        (size + sum(pad) - k) // s + 1
        for size, pad, k, s in zip(shape[1:3], pads, kernel, strides, strict=True)
    )
    return attributes, out


def _weights(rng: Rng, shape: tuple[int, ...]) -> Array:
    return np.clip(rng.normal(0, 40, shape), -127, 127).astype(np.int8)


def _bias(rng: Rng, count: int) -> Array:
    return rng.integers(-9000, 9000, count).astype(np.int32)


def _conv(
    draft: Draft, source: Ref, rng: Rng, symmetric: bool, groups: int = 1, channelwise: bool = False
) -> Ref:
    attributes, out = _pick_window(rng, source.shape)
    depth = source.shape[3]
    count = depth if groups != 1 else int(rng.choice([depth, 6, 8]))
    shape = (count, *attributes["Kernels"], depth // (groups if groups == 1 else depth))
    scale, offset = float(rng.uniform(0.002, 0.01)), 0 if symmetric else int(rng.integers(-5, 6))
    if channelwise:
        offset = 0
    weights = draft.constant(_weights(rng, shape), "i8", scale, offset)
    product = source.type.quant.scale * weights.type.quant.scale
    bias = draft.constant(_bias(rng, count), "i32", product)
    result = draft.output(int8((1, *out, count)))
    attributes |= {"Group": groups if groups == 1 else depth, "Dilation": (1, 1)}
    if not channelwise:
        return draft.emit(
            "convolution",
            result,
            source,
            weights,
            bias,
            Layout="NHWC",
            FusedActivation="NONE",
            FusedActivationArgs=(),
            **attributes,
        )
    scales = (scale * rng.uniform(0.5, 2, count)).astype(np.float32)
    tables = [
        draft.constant(scales, "float"),
        draft.constant(np.zeros(count, np.int32), "index32"),
        draft.constant((np.float32(source.type.quant.scale) * scales).astype(np.float32), "float"),
        draft.constant(np.zeros(count, np.int32), "index32"),
    ]
    return draft.emit(
        "channelwisequantizedconvolution",
        result,
        source,
        weights,
        bias,
        *tables,
        FusedActivation="NONE",
        FusedActivationArgs=(),
        **attributes,
    )


def _fc(draft: Draft, source: Ref, rng: Rng, symmetric: bool, rowwise: bool = False) -> Ref:
    rows, depth = source.shape
    count = 10
    scale, offset = float(rng.uniform(0.002, 0.01)), 0 if symmetric else int(rng.integers(-5, 6))
    shape = (count, depth) if rowwise else (depth, count)
    weights = draft.constant(_weights(rng, shape), "i8", scale, 0 if rowwise else offset)
    bias = draft.constant(
        _bias(rng, count), "i32", source.type.quant.scale * weights.type.quant.scale
    )
    result = draft.output(int8((rows, count)))
    if not rowwise:
        return draft.emit("fullyconnected", result, source, weights, bias)
    scales = draft.constant((scale * rng.uniform(0.5, 2, count)).astype(np.float32), "float")
    offsets = draft.constant(np.zeros(count, np.int32), "index32")
    return draft.emit(
        "rowwisequantizedfullyconnected", result, source, weights, bias, scales, offsets
    )


def _add(draft: Draft, source: Ref, rng: Rng, symmetric: bool) -> Ref:
    other = draft.input(
        int8(source.shape, source.type.quant.scale * 1.7, -source.type.quant.offset)
    )
    return draft.emit("elementadd", draft.output(int8(source.shape)), source, other)


def _pool(draft: Draft, source: Ref, rng: Rng, symmetric: bool, opcode: str = "maxpool") -> Ref:
    attributes, out = _pick_window(rng, source.shape)
    shape = (1, *out, source.shape[3])
    quant = source.type.quant
    result = draft.output(int8(shape, quant.scale, quant.offset))
    more = {"CountIncludePads": 0} if opcode == "avgpool" else {}
    return draft.emit(opcode, result, source, Layout=0, **more, **attributes)


_STRUCTURES: dict[str, Callable[..., Ref]] = {
    "conv": _conv,
    "conv relu": _conv,
    "channelwise": lambda *args: _conv(*args, channelwise=True),
    "depthwise": lambda *args: _conv(*args, groups=0, channelwise=True),
    "fc": _fc,
    "rowwise": lambda *args: _fc(*args, rowwise=True),
    "add": _add,
    "maxpool": _pool,
    "avgpool": lambda *args: _pool(*args, opcode="avgpool"),
}
CONVS = ("conv", "channelwise", "depthwise", "conv relu")
WEIGHTED = (*CONVS, "fc", "rowwise")
ONE_RESULT = tuple(one for one in WEIGHTED if one != "conv relu")
"""Structures in which one tensor has the type of the result."""
WINDOWS = (*CONVS, "maxpool", "avgpool")


# --- faults -----------------------------------------------------------------------------------


@attrs.frozen
class Fault:
    """Fault: the structures that can have it, how it is planted, and texts that name it."""

    structures: tuple[str, ...]
    plant: Callable[[Network, Rng], Network]
    text: str
    """Regular expression of an explanation that names the fault."""


def _weights_fault(change: Callable[[Array], Array]) -> Callable[[Network, Rng], Network]:
    return lambda net, rng: net.with_constants(
        **{net.name(2): np.ascontiguousarray(change(net.constant(2)))}
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
    return _add_relu(net, Ref(net.name(0), None, "output"))  # type: ignore[arg-type]


def _stale(net: Network, rng: Rng) -> Network:
    first, target, *others = net.operation.operands
    stale = attrs.evolve(target, name=next(iter(net.inputs)))
    return net.with_operation(operands=(first, stale, *others))


def _swapped(net: Network, rng: Rng) -> Network:
    first, a, b = net.operation.operands
    return net.with_operation(operands=(first, b, a))


FAULTS: dict[str, Fault] = {
    "kernel transposed": Fault(
        CONVS,
        _weights_fault(lambda w: w.transpose(0, 2, 1, 3) if w.shape[1] == w.shape[2] else w),
        "axes swapped",
    ),
    "kernel flipped": Fault(
        CONVS, _weights_fault(lambda w: w[:, ::-1]), "flipped vertically|rows moved"
    ),
    "kernel rotated": Fault(CONVS, _weights_fault(lambda w: w[:, ::-1, ::-1]), "180"),
    "O and I swapped": Fault(
        ("conv", "channelwise", "conv relu"),
        _weights_fault(lambda w: w.transpose(3, 1, 2, 0).reshape(w.shape)),
        "IHWO|input and output channels swapped",
    ),
    "O and I swapped in a matrix": Fault(
        ("fc", "rowwise"), _weights_fault(lambda w: w.T.reshape(w.shape)), "memory in the order"
    ),
    "HWIO": Fault(
        ("conv", "channelwise"),
        _weights_fault(lambda w: w.transpose(1, 2, 3, 0).reshape(w.shape)),
        "HWIO",
    ),
    "inputs rolled": Fault(
        ("conv", "channelwise", "rowwise"),
        _weights_fault(lambda w: np.roll(w, 1, -1)),
        "channels moved by 1|input channels",
    ),
    "inputs reversed": Fault(
        ("conv", "channelwise", "rowwise"),
        _weights_fault(lambda w: w[..., ::-1]),
        "input channels in reverse",
    ),
    "outputs rolled": Fault(
        CONVS, _weights_fault(lambda w: np.roll(w, 1, 0)), "output channels moved"
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
        (*WEIGHTED, "add"), _offset_fault(1, lambda o: o + 1), "zero point .*of the (first )?input"
    ),
    "input zero point 0": Fault(
        (*WEIGHTED, "add"), _offset_fault(1, lambda o: 0), "zero point .*of the (first )?input"
    ),
    "weights zero point +1": Fault(
        ("conv", "fc"), _offset_fault(2, lambda o: o + 1), "zero point.* of the weights"
    ),
    "weights zero point 0": Fault(
        ("conv", "fc"), _offset_fault(2, lambda o: 0), "zero point.* of the weights"
    ),
    "weights unsigned": Fault(
        WEIGHTED, _weights_fault(lambda w: w ^ np.int8(-128)), "the weights as uint8"
    ),
    "result zero point -1": Fault(
        (*WEIGHTED, "add"), _offset_fault(0, lambda o: o - 1), "zero point .*of the result"
    ),
    "result zero point 9": Fault(
        (*ONE_RESULT, "add"), _offset_fault(0, lambda o: o + 9), "zero point .*of the result"
    ),
    "padding on the other side": Fault(
        WINDOWS, _swap_pads, "padding on the other side|padding \\d"
    ),
    "padding on one side": Fault(WINDOWS, _shift_pads, "padding"),
    "ReLU missing or extra": Fault(("conv", "channelwise", "add"), _relu, "ReLU|no activation"),
    "channel scale": Fault(
        ("channelwise", "depthwise"), _table_fault(4), "scale of the weights in 1 "
    ),
    "row scale": Fault(("rowwise",), _table_fault(4), "scale of the weights in 1 "),
    "channel scales": Fault(
        ("channelwise", "depthwise"), _table_fault(4, 6), "scale of weights and bias in 1 "
    ),
    "result scale": Fault(
        ONE_RESULT, lambda n, r: n.with_type(n.name(0), 1.3), "scale of the result"
    ),
    "input scale": Fault(
        ("add",), lambda n, r: n.with_type(n.name(2), 1.3), "scale of the second input"
    ),
    "stale input": Fault(tuple(_STRUCTURES), _stale, "input__1|buffer__3 as the"),
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
    outputs = [
        device.run(bundle, network.inputs, save_layers=True).layer_outputs for bundle in bundles
    ]
    right, wrong = (list(one.values())[-1] for one in outputs)
    if np.array_equal(right, wrong):
        return None
    program, reference = (bundles[1], 0) if in_program else (bundles[0], 1)
    index = len(program.metadata.layers) - 1
    key = make_layer_key(program.metadata.layers[index])
    before = {
        make_layer_key(layer): outputs[reference][k]
        for layer, k in zip(program.metadata.layers[:-1], outputs[reference], strict=False)
    }
    expected = list(outputs[reference].values())[-1]
    results = search_hypotheses(
        program, index, network.inputs, {**before, key: expected}, expected, device=device
    )
    texts = [one.text for one in results.explanations]
    named = [text for text in texts if re.search(fault.text, text)]
    return Trial(results, bool(named), tuple(text for text in texts if text not in named))


def main() -> None:
    """Run a campaign and print the share of named faults by kind, and false causes."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    device = Device(CONFIG)
    totals: Counter[str] = Counter()
    named: Counter[str] = Counter()
    others: list[str] = []
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        for name, fault in FAULTS.items():
            structure = str(rng.choice(list(fault.structures)))
            numerics = str(rng.choice(["glow-int", "q31", "glow-float"]))
            in_program = bool(rng.integers(2))
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
                )
            elif trial.false_causes:
                others.append(f"also {where}: {trial.false_causes}")
    for name in totals:
        print(f"{named[name]:4} of {totals[name]:4}  {name}")
    print(f"{sum(named.values())} of {sum(totals.values())} named")
    print("\n".join(others))


if __name__ == "__main__":
    main()
