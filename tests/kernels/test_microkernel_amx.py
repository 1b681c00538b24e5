"""Test the assembly and the sums of the AMX kernels.

Tiles are computed by NumPy, by the emulator Bochs, and by the host if it has them.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import attrs
import bochs
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import binding, ir
from test_microkernel import run_digest_process
from tiers import examples

from nmpsim.cli.environment import get_numba_settings
from nmpsim.kernels import amx_tiles, microkernel_amx
from nmpsim.kernels.amx_check import is_amx_code_correct, make_check_module
from nmpsim.kernels.cpu_features import FEATURES
from nmpsim.kernels.host_cpu import remove_forbidden_features
from nmpsim.kernels.ir_functions import emit_function, flatten
from nmpsim.kernels.operands import InputWindow
from nmpsim.kernels.targets import SETTING, TARGETS, choose_target, restrict_features
from nmpsim.kernels.vector_code import I64, LANES, make_int_constant
from nmpsim.kernels.workspace_size import MAX_PIXELS

Array = npt.NDArray[Any]
Call = tuple[str, tuple[Any, ...]]
EMITTED = {
    "_configure": amx_tiles.emit_tile_configuration,
    "_gather": amx_tiles.emit_gather,
    "_pack_tails": amx_tiles.emit_pack_tails,
    "_products": amx_tiles.emit_block_dispatch,
    "_release": amx_tiles.emit_tile_release,
}


def compile_register_block(across: int, blocks: int) -> list[str]:
    """Compile a register block and return the lines of its assembly."""
    module = ir.Module()
    module.triple = bochs.TRIPLE
    kernel = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * 11), "kernel")
    b = ir.IRBuilder(kernel.append_basic_block("entry"))
    amx_tiles.emit_block(b, across, blocks, *kernel.args)
    b.ret_void()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    features = ",".join(TARGETS["amx"])
    target = binding.Target.from_triple(bochs.TRIPLE)
    machine = target.create_target_machine(cpu="x86-64", features=features, opt=3)
    text = machine.emit_assembly(binding.parse_assembly(str(module)))
    return [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize(("across", "blocks"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_the_kernel_uses_amx_instructions(across: int, blocks: int) -> None:
    """16,384 products an instruction; each tile is loaded once a turn, and sums stay in tiles."""
    lines = compile_register_block(across, blocks)
    (end,) = (
        i
        for i, line in enumerate(lines)
        if re.match(r"j(?!mp)\w+\s", line) and _is_backward_branch(lines, i)
    )
    begin = lines.index(f"{lines[end].split()[1]}:")
    loop = [line.split()[0] for line in lines[begin + 1 : end + 1] if line[0] not in ".#"]
    assert loop.count("tdpbssd") == across * blocks
    assert loop.count("tileloadd") == across + blocks
    assert len(loop) <= across * blocks + 2 * (across + blocks) + 4
    assert not any("%rsp" in line for line in lines[begin:end])
    stored = [line for line in lines if line.startswith("tilestored")]
    assert len(stored) == across * blocks


def _is_backward_branch(lines: list[str], end: int) -> bool:
    """Return whether the branch in a line goes to an earlier line."""
    return f"{lines[end].split()[1]}:" in lines[:end]


# --- sums -----------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Case:
    window: InputWindow
    pixels: int
    blocks: int
    inputs: Array
    offsets: Array
    weights: Array

    @property
    def depth(self) -> int:
        return self.window.rows * self.window.runs * -(-self.window.length // 4) * 4

    def compute_expected(self, kind: Any = np.int8) -> Array:
        """Compute the sums [pixels, lanes] modulo 2^32, for int8 or uint8 operands."""
        w = self.window
        runs = [
            row * w.row_stride + run * w.run_stride + np.arange(-(-w.length // 4) * 4)
            for row in range(w.rows)
            for run in range(w.runs)
        ]
        held = self.inputs[self.offsets[: self.pixels, None] + np.concatenate(runs)].view(kind)
        lanes = self.weights.reshape(self.blocks, -1, LANES, 4).transpose(0, 2, 1, 3).view(kind)
        return held.astype(np.int32) @ lanes.reshape(self.blocks * LANES, -1).T.astype(np.int32)


WINDOWS = {
    "in place": (InputWindow(1, 0, 1, 0, 64), 72),
    "the same pixel": (InputWindow(1, 0, 1, 0, 128), 0),
    "scattered": (InputWindow(1, 0, 1, 0, 128), None),
    "last chunk": (InputWindow(1, 0, 1, 0, 100), 100),
    "3x3 strided": (InputWindow(3, 300, 3, 40, 12), None),
    "7x7x3": (InputWindow(7, 90, 1, 0, 21), None),
    "one byte": (InputWindow(1, 0, 1, 0, 1), 1),
}
SHAPES = [(1, 1), (16, 2), (33, 1), (MAX_PIXELS, 3)]
"""Pixels and blocks."""


def draw_case(window: InputWindow, step: int | None, pixels: int, blocks: int) -> Case:
    """Draw a case whose pixels are ``step`` bytes apart, or at random offsets."""
    rng = np.random.default_rng(pixels)
    offsets = np.arange(MAX_PIXELS) * step if step is not None else rng.integers(0, 700, MAX_PIXELS)
    offsets[pixels:] = offsets[pixels - 1]
    inputs = rng.choice(np.array([-128, -1, 0, 5, 127], np.int8), 8000)
    fours = -(-window.length // 4)
    shape = (blocks, window.rows * window.runs, fours, LANES, 4)
    weights = rng.choice(np.array([-128, -7, 0, 127], np.int8), shape)
    if window.length % 4:
        weights[:, :, -1, :, window.length % 4 :] = 0
    return Case(window, pixels, blocks, inputs, offsets.astype(np.int64), weights.reshape(-1))


class PlacedArray(np.ndarray[Any, Any]):
    """Array that reports a given address instead of its own."""

    address: int

    @property
    def ctypes(self) -> Any:
        return SimpleNamespace(data=self.address)


def place_array(array: Array, address: int) -> PlacedArray:
    view = array.view(PlacedArray)
    view.address = address
    return view


@contextmanager
def record_calls() -> Iterator[list[Call]]:
    """Record the calls of the driver and their arguments without compiling them."""
    calls: list[Call] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in EMITTED:
            patch.setattr(microkernel_amx, name, lambda given, n=name: calls.append((n, given)))
        for name in ("_workspace_at", "_uniform_stride", "get_address", "make_window_rows"):
            plain = get_python_function(getattr(microkernel_amx, name))
            patch.setattr(microkernel_amx, name, plain)
        yield calls


def get_python_function(function: Any) -> Any:
    return getattr(function, "py_func", function)


def run_driver(case: Case, data: int, out: int, workspace_at: int, times: int = 1) -> bytes:
    """Run the driver on a case whose data is at ``data``, and return the bytes of the data."""
    parts = [case.offsets, case.weights, case.inputs]
    starts = data + np.cumsum([0, *(part.nbytes for part in parts[:-1])])
    offsets, weights, inputs = map(place_array, parts, starts.tolist())
    sums = place_array(np.zeros((MAX_PIXELS, case.blocks * LANES), np.int32), out)
    words = get_python_function(microkernel_amx.get_workspace_size_amx)(case.blocks, case.depth)
    workspace = place_array(np.full(words, 77), workspace_at)
    get_python_function(microkernel_amx.initialize_workspace_amx)(workspace)
    products = get_python_function(microkernel_amx.compute_products_amx)
    for _ in range(times):
        products(
            inputs, 0, offsets, case.window, weights, 0, case.pixels, sums, None, workspace, None
        )
    return b"".join(part.tobytes() for part in parts)


def build_module(calls: list[Call]) -> str:
    """Build an LLVM module whose function ``kernel`` makes all calls."""
    module = ir.Module()
    functions: dict[str, ir.Function] = {}
    for name, numbers in calls:
        functions[name] = emit_function(module, name, EMITTED[name], numbers)
    kernel = ir.Function(module, ir.FunctionType(ir.VoidType(), []), "kernel")
    b = ir.IRBuilder(kernel.append_basic_block("entry"))
    for name, numbers in calls:
        b.call(functions[name], [make_int_constant(int(one)) for one in flatten(numbers)])
    b.ret_void()
    return str(module)


class Tiles:
    """Tiles as the processor's manual describes them, on this process's memory."""

    signatures: ClassVar[dict[str, str]] = {
        "ldtilecfg": "p",
        "tilerelease": "",
        "tilezero": "t",
        "tileloadd64": "tps",
        "tilestored64": "tps",
        "tdpbssd": "ttt",
    }
    """t: a tile; p: an address; s: a stride in bytes."""

    def __init__(self, readable: list[Array], writable: list[Array]) -> None:
        """Create tiles that may access only the given arrays, or any memory if there are none."""
        self.readable, self.writable = (
            [(part.ctypes.data, part.ctypes.data + part.nbytes) for part in parts]
            for parts in (readable, writable)
        )
        self.wrong: list[str] = []
        self.tiles: list[Array] = []
        self.count = 0

    def check(self, at: int, size: int, among: list[tuple[int, int]]) -> None:
        assert not among or any(low <= at and at + size <= high for low, high in among)

    def ldtilecfg(self, address: int) -> None:
        held = np.frombuffer(ctypes.string_at(address, 64), np.uint8)
        widths, heights = held[16:32].view(np.uint16), held[48:56]
        assert held[0] == 1 and not held[1:16].any() and not held[32:48].any()
        assert not held[56:].any() and widths.max() <= 64 and heights.max() <= 16
        assert widths.min() > 0 and heights.min() > 0
        sizes = zip(heights.tolist(), widths.tolist(), strict=True)
        self.tiles = [np.zeros(size, np.uint8) for size in sizes]

    def tilerelease(self) -> None:
        self.tiles = []

    def tilezero(self, tile: int) -> None:
        self.tiles[tile][:] = 0

    def tileloadd64(self, tile: int, address: int, stride: int) -> None:
        height, width = self.tiles[tile].shape
        for row in range(height):
            at = address + row * stride
            self.check(at, width, self.readable)
            self.tiles[tile][row] = np.frombuffer(ctypes.string_at(at, width), np.uint8)

    def tilestored64(self, tile: int, address: int, stride: int) -> None:
        for row, values in enumerate(self.tiles[tile]):
            at = address + row * stride
            self.check(at, values.size, self.writable)
            ctypes.memmove(at, values.tobytes(), values.size)

    def tdpbssd(self, sums: int, left: int, right: int) -> None:
        c, a, b = (self.tiles[tile] for tile in (sums, left, right))
        assert c.shape[0] == a.shape[0] and c.shape[1] == b.shape[1] and a.shape[1] == 4 * len(b)
        of_a = a.view(np.int8).reshape(len(a), len(b), 4).astype(np.int32)
        of_b = b.view(np.int8).reshape(len(b), -1, 4).astype(np.int32)
        c.view(np.int32)[:] += np.einsum("mkj,knj->mn", of_a, of_b, dtype=np.int32)
        self.count += 1

    def make_ctypes_functions(self) -> dict[str, Any]:
        """Make functions that compiled code can call; they record errors in ``wrong``."""
        kinds = {"t": ctypes.c_uint8, "p": ctypes.c_int64, "s": ctypes.c_int64}

        def record_errors(name: str) -> Callable[..., None]:
            def execute(*given: int) -> None:
                try:
                    getattr(self, name)(*given)
                except Exception as error:
                    self.wrong.append(f"{name}{given}: {error!r}")

            return execute

        return {
            name: ctypes.CFUNCTYPE(None, *(kinds[one] for one in kind))(record_errors(name))
            for name, kind in self.signatures.items()
        }


@contextmanager
def link_tile_functions(tiles: Tiles, code: str) -> Iterator[str]:
    """Replace AMX instructions in the code by calls of the functions of ``tiles``."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    instructions = tiles.make_ctypes_functions()
    for name, function in instructions.items():
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        binding.add_symbol(f"tile_{name}", address)
    yield code.replace("llvm.x86.", "tile_")
    assert not tiles.wrong, tiles.wrong[:3]
    assert not tiles.tiles


def run_on_host(code: str) -> None:
    """Run the function ``kernel`` on the host processor."""
    machine = binding.Target.from_default_triple().create_target_machine(opt=1)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(code), machine)
    ctypes.CFUNCTYPE(None)(engine.get_function_address("kernel"))()


def check_with_numpy_tiles(case: Case) -> None:
    """Assert that the sums are exact, with all loads and stores inside the given arrays."""
    data = np.zeros(case.offsets.nbytes + case.weights.nbytes + case.inputs.nbytes, np.uint8)
    out = np.full((MAX_PIXELS, case.blocks * LANES), 77, np.int32)
    with record_calls() as calls:
        words = get_python_function(microkernel_amx.get_workspace_size_amx)(case.blocks, case.depth)
        workspace = np.full(words + 1, 77)
        addresses = (one.ctypes.data for one in (data, out, workspace))
        data[:] = np.frombuffer(run_driver(case, *addresses), np.uint8)
    tiles = Tiles([data[case.offsets.nbytes :], workspace[:-1]], [out])
    with link_tile_functions(tiles, build_module(calls)) as code:
        run_on_host(code)
    np.testing.assert_array_equal(out[: case.pixels], case.compute_expected())
    assert (out[case.pixels :] == 77).all()
    assert workspace[-1] == 77
    assert tiles.count == -(-case.pixels // 16) * case.blocks * -(-case.depth // 64)


def check_under_bochs(cases: list[Case], folder: Path) -> None:
    """Assert that sums under Bochs are exact, for signed or (up to Bochs 3.0) unsigned bytes."""
    missing = bochs.find_missing_requirement()
    if missing is not None:
        pytest.skip(missing)
    data, size = b"", 0
    with record_calls() as calls:
        for case in cases:
            data += run_driver(case, bochs.DATA + len(data), bochs.RESULTS + size, bochs.ROOM)
            size += 4 * MAX_PIXELS * case.blocks * LANES
    found = bochs.run(folder, build_module(calls), data, size)
    if found is None:
        pytest.skip("this bochs was built without AMX")
    sums, results = np.frombuffer(found, np.int32), []
    for case in cases:
        lanes = case.blocks * LANES
        results.append(sums[: MAX_PIXELS * lanes].reshape(-1, lanes))
        sums = sums[MAX_PIXELS * lanes :]
    assert any(
        all(
            np.array_equal(found[: case.pixels], case.compute_expected(kind))
            for case, found in zip(cases, results, strict=True)
        )
        for kind in (np.int8, np.uint8)
    )
    assert not any(found[case.pixels :].any() for case, found in zip(cases, results, strict=True))


@pytest.mark.parametrize("name", WINDOWS)
def test_sums_are_exact_with_tiles_in_numpy(name: str) -> None:
    for shape in SHAPES:
        check_with_numpy_tiles(draw_case(*WINDOWS[name], *shape))


def test_sums_are_exact_under_bochs(tmp_path: Path) -> None:
    cases = [draw_case(*WINDOWS[name], *shape) for name in WINDOWS for shape in SHAPES]
    check_under_bochs(cases, tmp_path)


CASES = st.builds(
    draw_case,
    st.builds(
        InputWindow,
        rows=st.integers(1, 4),
        row_stride=st.integers(100, 400),
        runs=st.integers(1, 3),
        run_stride=st.integers(4, 200),
        length=st.one_of(st.integers(1, 200), st.sampled_from([64, 128, 192])),
    )
    | st.builds(InputWindow, st.just(1), st.just(0), st.just(1), st.just(0), st.integers(1, 400)),
    step=st.none() | st.integers(0, 90),
    pixels=st.integers(1, MAX_PIXELS),
    blocks=st.integers(1, 5),
)


@examples(5)
@given(CASES)
def test_random_sums_are_exact_with_tiles_in_numpy(case: Case) -> None:
    check_with_numpy_tiles(case)


@examples(2)
@given(st.lists(CASES, min_size=1, max_size=3))
def test_random_sums_are_exact_under_bochs(cases: list[Case]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_under_bochs(cases, Path(folder))


def test_weights_are_packed_once_and_windows_gathered_only_where_they_must_be() -> None:
    one_pass = ["_configure", "_products", "_release"]
    for name, expected in (
        ("in place", one_pass * 2),
        ("scattered", ["_gather", *one_pass] * 2),
        ("last chunk", ["_pack_tails", *["_gather", *one_pass] * 2]),
    ):
        with record_calls() as calls:
            run_driver(draw_case(*WINDOWS[name], 16, 2), 0, 0, 0, times=2)
        assert [called for called, _ in calls] == expected


def test_sums_are_exact_on_this_host() -> None:
    if not FEATURES.issuperset(TARGETS["amx"]):
        pytest.skip("this processor has no AMX, or the system does not let programs use it")
    portable = run_digest_process(**get_numba_settings({**os.environ, SETTING: "portable"}))
    amx = run_digest_process(**get_numba_settings({**os.environ, SETTING: "amx"}))
    assert (amx.returncode, amx.stdout) == (0, portable.stdout), amx.stderr


# --- which processors use them --------------------------------------------------------------------

XEON = frozenset(("+fma", "+avx512vl", *TARGETS["amx"], *TARGETS["vnni"], *TARGETS["avx2"]))


class UnsignedTiles(Tiles):
    """Tiles whose ``tdpbssd`` takes bytes as unsigned, as in Bochs up to 3.0."""

    def tdpbssd(self, sums: int, left: int, right: int) -> None:
        c, a, b = (self.tiles[tile].astype(np.int32) for tile in (sums, left, right))
        c = np.einsum("mkj,knj->mn", a.reshape(len(a), -1, 4), b.reshape(len(b), -1, 4))
        self.tiles[sums].view(np.int32)[:] += c


@pytest.mark.parametrize(("kind", "expected"), [(Tiles, True), (UnsignedTiles, False)])
def test_wrong_tiles_fail_the_self_test(kind: type[Tiles], expected: bool) -> None:
    with link_tile_functions(kind([], []), make_check_module()) as code:
        assert is_amx_code_correct(code) is expected


@pytest.mark.parametrize(
    ("system", "answer", "flavour"),
    [("linux", 0, "amx"), ("linux", -1, "vnni"), ("win32", 0, "vnni"), ("darwin", 0, "vnni")],
)
def test_the_system_may_refuse(
    system: str, answer: int, flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, ...]] = []

    def syscall(*given: ctypes.c_long) -> int:
        asked.append(tuple(one.value for one in given))
        return answer

    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(syscall=syscall))
    usable = remove_forbidden_features(XEON)
    assert choose_target(None, usable) == flavour
    assert asked == ([(158, 0x1023, 18)] if system == "linux" else [])
    asked.clear()
    without = XEON.difference(TARGETS["amx"])
    assert remove_forbidden_features(without) is without
    assert not asked


def test_vnni_keeps_the_rest_of_avx512() -> None:
    left = restrict_features("vnni", XEON)
    assert left == XEON.difference(TARGETS["amx"]) | {"-amx-tile", "-amx-int8"}
    assert choose_target(None, left) == "vnni"
    narrow = {one for one in restrict_features("avx2", XEON) if one.startswith("+")}
    assert narrow == {"+fma", "+avx2"}
