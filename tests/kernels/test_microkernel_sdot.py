"""Test the assembly of the Arm kernels, and their sums under QEMU."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from llvmlite import binding, ir

from nmpsim.kernels.host_cpu import add_implied_features
from nmpsim.kernels.microkernel import SDOT, emit_block
from nmpsim.kernels.operands import InputWindow
from nmpsim.kernels.targets import TARGETS, choose_target, restrict_features
from nmpsim.kernels.vector_code import I64, LANES, WindowRows, make_int_constant

Array = npt.NDArray[Any]
Emit = Callable[[ir.IRBuilder, list[ir.Value]], None]
TRIPLE = "aarch64-unknown-linux-gnu"
PIXELS = SDOT.shapes[1]
ARGUMENTS = 12
"""Of a register block, after pixels and blocks."""
binding.initialize_all_targets()
binding.initialize_all_asmprinters()


def make_target_machine() -> binding.TargetMachine:
    target = binding.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu="generic", features="+dotprod", opt=3)


def compile_function(arguments: int, emit: Emit) -> binding.ModuleRef:
    """Compile a module with one function, optimized as kernels are."""
    module = ir.Module()
    module.triple = TRIPLE
    kind = ir.FunctionType(ir.VoidType(), [I64] * arguments)
    function = ir.Function(module, kind, "kernel")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    emit(builder, list(function.args))
    builder.ret_void()
    parsed = binding.parse_assembly(str(module))
    options = binding.create_pipeline_tuning_options(speed_level=3)
    passes = binding.create_pass_builder(make_target_machine(), options)
    passes.getModulePassManager().run(parsed, passes)
    return parsed


def emit_sdot(b: ir.IRBuilder, pixels: int, offsets: ir.Value, *given: ir.Value) -> None:
    """Emit a register block of one block of channels."""
    emit_block(b, SDOT, pixels, 1, offsets, WindowRows(*given[:6]), *given[6:])


def find_innermost_loop(assembly: str) -> list[str]:
    """Return the instructions from a label to the first branch back to it."""
    lines = [line.strip() for line in assembly.splitlines()]
    for end, line in enumerate(lines):
        back = re.fullmatch(r"b\.\w+\s+(\.\w+)", line)
        if back and f"{back[1]}:" in lines[:end]:
            begin = lines.index(f"{back[1]}:")
            return lines[begin + 1 : end + 1]
    raise AssertionError(assembly)


@pytest.mark.parametrize("pixels", PIXELS)
def test_the_kernel_uses_sdot_instructions(pixels: int) -> None:
    """Sixteen lanes, four inputs: four ``sdot`` a pixel, and all sums stay in registers."""
    kernel = compile_function(ARGUMENTS, lambda b, given: emit_sdot(b, pixels, *given))
    loop = find_innermost_loop(make_target_machine().emit_assembly(kernel))
    assert sum(line.startswith("sdot") for line in loop) == 4 * pixels
    assert not any("sp" in re.split(r"\W+", line) for line in loop)
    assert len(loop) <= 6 + 5 * pixels
    if pixels == 4:
        assert len(loop) <= 27  # for 256 products


WINDOWS = {
    "1x1": InputWindow(1, 0, 1, 0, 64),
    "3x3 strided": InputWindow(3, 300, 3, 40, 12),
    "one byte": InputWindow(1, 0, 1, 0, 1),
}
MAX_CORNER = 700


@pytest.mark.parametrize("name", WINDOWS)
def test_sums_are_exact_under_qemu(name: str, tmp_path: Path) -> None:
    window = WINDOWS[name]
    rng = np.random.default_rng(3)
    steps = window.rows * window.runs * -(-window.length // 4)
    inputs = rng.choice(np.array([-128, -1, 0, 5, 127], np.int8), 2000)
    offsets = rng.integers(0, MAX_CORNER, PIXELS[-1])
    weights = rng.choice(np.array([-128, -7, 0, 127], np.int8), (steps, LANES, 4))
    if window.length % 4:
        weights[..., window.length % 4 :] = 0
    sums = run_under_qemu(tmp_path / "kernel", window, inputs, offsets, weights)
    taps = np.array(
        [
            row * window.row_stride + run * window.run_stride + four * 4 + np.arange(4)
            for row in range(window.rows)
            for run in range(window.runs)
            for four in range(-(-window.length // 4))
        ]
    )
    held = inputs[offsets[:, None, None] + taps].astype(np.int64)
    expected = np.einsum("psk,slk->pl", held, weights.astype(np.int64))
    for pixels, found in sums.items():
        np.testing.assert_array_equal(found, expected[:pixels], str(pixels))


BASE, START = 0x400000, 128
"""Where a program begins in memory, and its code in the file."""


def run_under_qemu(
    path: Path, window: InputWindow, inputs: Array, offsets: Array, weights: Array
) -> dict[int, Array]:
    """Run a program of only the kernel and its data under QEMU; return the sums by pixel count."""
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if qemu is None:
        pytest.skip("there is no qemu-aarch64 (Debian: qemu-user)")
    data = b"".join(one.tobytes() for one in (offsets, inputs, weights))
    at_offsets = BASE + (1 << 16)
    at_inputs = at_offsets + offsets.nbytes
    at_weights = at_inputs + inputs.nbytes
    out = at_offsets + len(data) + -len(data) % 8
    row = 4 * LANES
    counts = [window.rows, window.row_stride, window.runs, window.run_stride]

    def emit(b: ir.IRBuilder, _: list[ir.Value]) -> None:
        to = out
        for pixels in PIXELS:
            where = [at_offsets, at_inputs, *counts, -(-window.length // 4), at_weights, 0]
            emit_sdot(b, pixels, *map(make_int_constant, [*where, to, row, to]))
            to += pixels * row

    size = sum(PIXELS) * row
    code = make_target_machine().emit_object(compile_function(0, emit))
    sections = {s.name(): s.data() for s in binding.ObjectFileRef.from_data(code).sections()}
    assert b".rela.text" not in sections and ".rela.text" not in sections
    (text,) = (held for name, held in sections.items() if name in (b".text", ".text"))
    path.write_bytes(build_executable(text, data, at_offsets, out, size))
    path.chmod(0o755)
    done = subprocess.run([qemu, path], capture_output=True, check=True, timeout=60)
    rows = np.frombuffer(done.stdout, np.int32).reshape(-1, LANES)
    ends = np.cumsum(PIXELS)
    return {p: rows[end - p : end] for p, end in zip(PIXELS, ends, strict=True)}


def build_executable(text: bytes, data: bytes, at_data: int, out: int, size: int) -> bytes:
    """Build a Linux ELF file that calls the code, writes ``size`` bytes from ``out`` and exits."""
    call, write, leave = 0x94000000, 64, 93
    begin = [
        *_encode_set_register(1, out),
        *_encode_set_register(2, size),
        *_encode_set_register(0, 1),
        *_encode_set_register(8, write),
        0xD4000001,
    ]
    begin += [*_encode_set_register(0, 0), *_encode_set_register(8, leave), 0xD4000001]
    words = [call | (len(begin) + 1), *begin]
    code = struct.pack(f"<{len(words)}I", *words) + text
    image = bytes(START) + code
    image += bytes(at_data - BASE - len(image)) + data
    image += bytes(out + size - BASE - len(image))
    header = struct.pack(
        "<4s12BHHIQQQIHHHHHH",
        *(b"\x7fELF", 2, 1, 1, *[0] * 9, 2, 183, 1, BASE + START, 64, 0, 0, 64, 56, 1, 0, 0, 0),
    )
    sizes = (BASE, BASE, len(image), len(image), 1 << 16)
    segment = struct.pack("<IIQQQQQQ", 1, 7, 0, *sizes)
    return header + segment + image[len(header + segment) :]


def _encode_set_register(register: int, value: int) -> list[int]:
    """Encode ``movz`` and ``movk``, which set a register to a 32-bit value."""
    low, high = value & 0xFFFF, value >> 16
    return [0xD2800000 | low << 5 | register, 0xF2A00000 | high << 5 | register]


@pytest.mark.parametrize(("name", "has"), [("neoverse-n1", True), ("cortex-a72", False)])
def test_a_processor_name_implies_sdot(name: str, has: bool) -> None:
    listed = frozenset({"+neon", "+crc"})
    found = add_implied_features(listed, TRIPLE, name)
    assert found == (listed | {"+dotprod"} if has else listed)
    assert choose_target(None, found) == ("sdot" if has else "portable")
    without = restrict_features("portable", found)
    assert add_implied_features(without, TRIPLE, name) == without
    assert choose_target(None, without) == "portable"


def test_other_processors_do_not_use_sdot() -> None:
    listed = frozenset({"+avx2"})
    assert add_implied_features(listed, "x86_64-unknown-linux-gnu", "znver3") is listed
    assert "-dotprod" not in restrict_features("portable", frozenset(TARGETS["vnni"]))
