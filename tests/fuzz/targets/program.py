"""LIR texts, which must keep the contract when compiled and run alike on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import attrs
import numpy as np

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.config import DeviceConfig
from nmpsim.core.device import Device
from nmpsim.lir.constants import attach_arrays
from nmpsim.lir.nodes import Module
from nmpsim.lir.parser import parse
from nmpsim.lir.verify import verify

from ..engines import limit_cycles, make_inputs, run_on_both, warm
from ..mutate import make_text_mutator
from ..target import ROOT, Target, allow_errors
from .lir import PIECES

MAX_ELEMENTS = 1 << 14
"""Limit of the elements of all tensors together, so that runs are short."""
SMALL = b"""function
declare {
  %data = WeightVar mutable // size: 32 // Users: @in 1
  %out = WeightVar mutable // size: 8 // Users: @out 1
}
"""


@cache
def device() -> DeviceConfig:
    """Return a small device."""
    return attrs.evolve(nmpsim.default_device(), cores_count=2, scratchpad_bytes=32768)


def run(data: bytes) -> None:
    """Compile with some constants; assert that the program does not trap and engines agree.

    The contract must be proved for all inputs.
    """
    warm()
    with allow_errors("LIR", "CONST", "COMP", "ISA", "BUN004", "INPUT"):
        module = parse(data.decode("utf-8", "replace"))
        verify(module)
        if _elements(module) > MAX_ELEMENTS:
            return
        module, _ = attach_arrays(module, _constants(module))
        bundle = parse_bundle(compile_module(module, device()))
        inputs = make_inputs(bundle.metadata)
        if inputs is None:
            return
        trap = run_on_both(bundle, limit_cycles(device()), inputs).trap
        assert trap is None or trap.kind == "cycle_limit", f"a compiled program traps: {trap}"
        contract = Device(limit_cycles(device()), threads=1).run(bundle, inputs).contract
        is_cut_short = trap is not None and contract.status != "violated"
        assert contract.status == "proved" or is_cut_short, f"not proved: {contract}"


def _elements(module: Module) -> int:
    types = [weight.type for weight in module.weights]
    types += [i.attributes["Ty"] for i in module.instructions if "Ty" in i.attributes]
    return sum(int(np.prod(getattr(t, "shape", ()), dtype=object)) for t in types)


def _constants(module: Module) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    made = {}
    for weight in module.weights:
        if weight.constant:
            kind, shape = weight.type.dtype, weight.type.shape
            values = (
                random.integers(-100, 100, shape)
                if kind.kind == "i"
                else (random.normal(0, 1, shape))
            )
            made[weight.name] = values.astype(kind)
    return made


def seeds() -> Iterator[bytes]:
    """Yield the digits program."""
    yield (ROOT / "programs" / "digits" / "digits.lir.txt").read_bytes()


TARGET = Target(run, seeds, make_text_mutator(PIECES), seconds=20)
