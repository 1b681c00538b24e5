"""Why an element is what it is that the host made."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from nmpsim.bundle.metadata import Layer, ProgramStep, Tensor
from nmpsim.core.host import read_tensor
from nmpsim.debugger import arithmetic
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.events import host_touches
from nmpsim.debugger.explanation import Explanation, NamedTerm
from nmpsim.debugger.inspect import coordinates


def on_host(debugger: Debugger, layer: Layer, found: Explanation, flat: int) -> Explanation:
    """What a host operation read; of what goes between real numbers and integers each step."""
    step = next(s for s in debugger.bundle.metadata.steps if layer.index in s.layers)
    inputs = [tensor for kind, tensor in host_touches(step) if kind == "read"]
    sources = tuple(
        f"{tensor.name}: {tensor.elem} {'x'.join(map(str, tensor.shape))}" for tensor in inputs
    )
    told = attrs.evolve(found, sources=sources)
    if step.opcode not in ("quantize", "dequantize") or len(inputs) != 1:
        return told
    (source,) = inputs
    with debugger.execution.visit():
        debugger.execution.go_to(debugger.start_of(layer.index))
        value = read_tensor(debugger.execution.machine, source).reshape(-1)[flat].item()
    if step.opcode == "quantize":
        steps = _quantized(debugger, layer, step, flat, found.value, value)
    else:
        steps = _dequantized(source, value, found.value)
    term = arithmetic.Term(coordinates(flat, source.shape), source.address, value)
    name = f"{source.name}{list(term.at)}"
    return attrs.evolve(
        told, made=arithmetic.Made((term,), steps, found.value), terms=(NamedTerm(term, name, ""),)
    )


def _quantized(
    debugger: Debugger, layer: Layer, step: ProgramStep, flat: int, stored: float, value: float
) -> tuple[arithmetic.WhyStep, ...]:
    output = layer.output
    scale, offset = np.float32(output.scale or 1.0), output.offset or 0
    with np.errstate(all="ignore"):
        scaled = float(np.float32(value) / scale)
    clip: Any = debugger.execution.account.clips.get(layer.index)
    steps = [arithmetic.WhyStep("scaled", f"/ {scale:.9g}", scaled)]
    if clip is not None:
        whole = clip.exact(flat, int(stored))
        formula = f"rounded as {step.numerics} does, + {offset}"
        steps.append(arithmetic.WhyStep("quantized", formula, whole))
        return (*steps, arithmetic.WhyStep("clip", f"to {clip.low} ... {clip.high}", stored))
    return (
        *steps,
        arithmetic.WhyStep("quantized", f"rounded as {step.numerics} does, + {offset}", stored),
    )


def _dequantized(source: Tensor, value: float, stored: float) -> tuple[arithmetic.WhyStep, ...]:
    scale, offset = np.float32(source.scale or 1.0), source.offset or 0
    return (
        arithmetic.WhyStep("less offset", f"x - {offset}", value - offset),
        arithmetic.WhyStep("real", f"* {scale:.9g}, as float32", stored),
    )
