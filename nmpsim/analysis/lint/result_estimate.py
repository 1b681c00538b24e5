"""What results take in the float model, estimated by a run on made-up inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs
import numpy as np

from nmpsim.analysis.lint.subject import Array, Subject
from nmpsim.analysis.shadow.constants import filters_of_biases, quantized_constants
from nmpsim.analysis.shadow.matching import match_constants
from nmpsim.compiler.operations import Operation, View
from nmpsim.interpreter import execute_real
from nmpsim.lir.nodes import TensorType
from nmpsim.lir.opcode import Kind
from nmpsim.quantization import Range

SAMPLES = 2
_GRIDS = (2, 4, 8, 1 << 20)
"""Cells along each side of a picture: images have their energy in coarse ones."""
_PROPORTIONAL = {
    Kind.CONVOLUTION,
    Kind.FULLY_CONNECTED,
    Kind.PRODUCT,
    Kind.BATCHED_ADD,
    Kind.MAX_POOL,
    Kind.PAIR,
    Kind.CLIP,
    Kind.RESCALE,
    Kind.MOVE,
    Kind.CONVERSION,
}
"""Kinds whose results grow with their sources."""


@attrs.define(eq=False)
class Estimate:
    """A quantized buffer from its first result to the last one in place."""

    op: Operation
    """That writes it first."""
    view: View
    range: Range
    """Of the last result in it."""
    before: float | None
    """The largest ``surplus`` of its sources; None if it has none."""
    after: list[Estimate] = attrs.field(factory=list)
    """What is computed from it, and from nothing with a larger surplus."""
    is_part: bool = False
    """Whether it is moved into something else, whose type it then may have."""

    @property
    def surplus(self) -> float:
        """Bits by which the type reaches farther than the estimate."""
        low, high = (self.view.scale * (end - self.view.offset) for end in self.view.limits)
        return float(np.log2(max(high, -low) / max(self.range.high, -self.range.low)))

    @property
    def step(self) -> float:
        """The surplus that this result adds to that of its sources."""
        return 0.0 if self.before is None else self.surplus - self.before


def estimates(subject: Subject) -> list[Estimate]:
    """Of every quantized result that is computed; UserError if the program cannot be run."""
    ranges = _float_ranges(subject)
    holding: dict[str, Estimate] = {}
    found: list[Estimate] = []
    for op in subject.operations:
        target, sources = op.operands[0].buffer.name, [v.buffer.name for v in op.operands[1:]]
        view, range_ = op.operands[0], ranges.get(op.instruction.name)
        known = [holding[name] for name in sources if name in holding]
        parent = max(known, key=lambda one: one.surplus, default=None)
        for one in known if op.kind is Kind.MOVE else ():
            one.is_part = True
        if view.type.quant is None or range_ is None or not (range_.high > 0 or range_.low < 0):
            holding.pop(target, None)
        elif op.kind is Kind.AVERAGE_POOL and parent is not None:
            holding[target] = parent
        elif op.kind not in _PROPORTIONAL or op.instruction.opcode in ("elementmul", "elementdiv"):
            holding.pop(target, None)
        elif target in holding and (target in sources or op.kind is Kind.MOVE):
            holding[target].range = range_
        else:
            new = Estimate(op, view, range_, None if parent is None else parent.surplus)
            holding[target] = new
            found.append(new)
            if parent is not None:
                parent.after.append(new)
    return found


def _float_ranges(subject: Subject) -> dict[str, Range]:
    """The range of each instruction's result over all samples."""
    constants = _float_constants(subject)
    ranges: dict[str, Range] = {}
    for inputs in _samples(subject):
        for instruction, name, values in execute_real(subject.module, inputs, constants):
            if name == instruction.operands[0].name and values.size:
                own = Range.of(values)
                before = ranges.get(instruction.name, own)
                ranges[instruction.name] = own.union(before)
    return ranges


def _float_constants(subject: Subject) -> Mapping[str, Array]:
    reals, filters = quantized_constants(subject.module), filters_of_biases(subject.module)
    return match_constants(reals, subject.float_weights or {}, filters).floats


def _samples(subject: Subject) -> Iterator[dict[str, Array]]:
    """Values of all inputs, the same ones each time."""
    rng = np.random.default_rng(0)
    written = {view.buffer.name for op in subject.operations for view in op.operands[:1]}
    inputs = [w for w in subject.module.weights if not w.constant and w.name not in written]
    ranges = {w.name: _input_range(w.name, w.type, subject) for w in inputs}
    for _ in range(SAMPLES):
        yield {w.name: _picture(w.type.shape, ranges[w.name], rng) for w in inputs}


def _input_range(name: str, type_: TensorType, subject: Subject) -> Range:
    """Of its own type, or of the type to which it is quantized."""
    readers = [op for op in subject.operations if op.operands[-1].buffer.name == name]
    views = [op.operands[0] for op in readers if op.instruction.opcode == "quantize"]
    views += [op.operands[-1] for op in readers if op.operands[-1].type.quant is not None]
    if type_.elem != "float" and type_.quant is None:
        return Range(0.0, 0.0)
    if not views:
        return Range(-1.0, 1.0)
    low, high = (views[0].scale * (end - views[0].offset) for end in views[0].limits)
    return Range(low, high)


def _picture(shape: tuple[int, ...], range_: Range, rng: np.random.Generator) -> Array:
    """Noise in cells of several sizes, stretched to the range."""
    sides = sorted(range(1, len(shape)), key=lambda axis: -shape[axis])[: max(len(shape) - 2, 1)]
    noise = np.zeros(shape)
    for cells in _GRIDS:
        grid = [min(n, cells) if axis in sides else n for axis, n in enumerate(shape)]
        layer = rng.normal(size=grid)
        for axis in sides:
            layer = layer.take(np.arange(shape[axis]) * grid[axis] // shape[axis], axis)
        noise += layer
    spread = np.ptp(noise) or 1.0
    picture: Array = range_.low + (range_.high - range_.low) * (noise - noise.min()) / spread
    return picture
