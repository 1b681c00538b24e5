"""ELF files with a C function that computes a layer; both engines must run the bundle alike."""

from __future__ import annotations

import attrs
import numpy as np

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.compiler.c_kernels import read_kernels
from nmpsim.compiler.driver import compile_module
from nmpsim.lir.parser import parse
from nmpsim.lir.verify import verify

from ..engines import limit_cycles, run_on_both, warm
from ..target import Target, allow_errors, write_file

LIR = """function main
declare {
  %x = WeightVar i8[S:0.5 O:0][-1,1]<1 x 16> mutable
  %y = WeightVar i8[S:0.5 O:0][-1,1]<1 x 16> mutable
}
code {
  0 %one = relu @out %y, @in %x
}
"""


def run(data: bytes) -> None:
    """Compile a network with a kernel; run the bundle."""
    warm()
    device = attrs.evolve(nmpsim.default_device(), cores_count=2)
    with allow_errors("BUN", "ARG001", "COMP002", "FILE001"):
        kernels = read_kernels({"one": str(write_file(data, "kernel.elf"))})
        module = parse(LIR)
        verify(module)
        bundle = parse_bundle(compile_module(module, device, kernels=kernels))
        run_on_both(bundle, limit_cycles(device), {"x": np.arange(16, dtype=np.int8)[None]})


TARGET = Target(run, seconds=20)
