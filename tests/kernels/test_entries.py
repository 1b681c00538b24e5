"""Test argument passing and caching of the compiled functions that Python calls."""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import nmpsim
from nmpsim.bundle.assembly import assemble
from nmpsim.config import default_device
from nmpsim.core.compiled.entries import KERNELS
from nmpsim.core.device import Device
from nmpsim.kernels import entries
from nmpsim.kernels.cache_folder import CacheFolder
from nmpsim.kernels.entries import CACHE, CompiledEntry
from nmpsim.kernels.host_cpu import get_cpu_features, get_cpu_name
from nmpsim.kernels.machine_code import ENTRY, EXTERNAL_FUNCTIONS
from nmpsim.kernels.numba_settings import IS_JIT_DISABLED

compiled_only = pytest.mark.skipif(
    IS_JIT_DISABLED or CACHE is None, reason="nothing is compiled, or nothing can be kept"
)
RECORD = np.dtype([("a", "i4"), ("b", "i8", (2, 3))])


class Inner(NamedTuple):
    records: Any
    number: int


class Outer(NamedTuple):
    inner: Inner
    bits: Any
    table: Any


def combine_arguments(given: Outer, factor: int, is_odd: bool, out: Any) -> Any:
    """Combine all arguments with distinct weights, so that a wrong argument changes the result."""
    out[0] = given.inner.records[1].b[1, 2] + 10 * given.inner.records[2].a
    out[1] = given.inner.number - given.bits[2]
    out[2] = given.table[1, 2, 3] + 1000 * given.table.shape[1]
    return factor * out[2] + (1 if is_odd else 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CacheFolder]:
    kept = CacheFolder(tmp_path / "kernels")
    monkeypatch.setattr(entries, "CACHE", kept)
    yield kept


def test_arguments_of_each_kind_arrive(folder: CacheFolder) -> None:
    records = np.zeros(4, RECORD)
    records["a"], records["b"] = [1, 2, -3, 4], np.arange(24).reshape(4, 2, 3)
    given = Outer(
        Inner(records.view(np.recarray), (1 << 62) + 5),
        np.array([False, False, True]),
        np.arange(60, dtype=np.int16).reshape(3, 4, 5),
    )
    out = np.zeros(3, np.int64)
    entry = CompiledEntry("test.weighted", lambda: combine_arguments)
    for is_odd in (False, True):
        assert entry(given, -3, is_odd, out) == -3 * (33 + 4000) + is_odd
        assert out.tolist() == [11 - 30, (1 << 62) + 4, 33 + 4000]
    assert entry.is_cached() != IS_JIT_DISABLED


def test_other_kinds_are_compiled_by_themselves(folder: CacheFolder) -> None:
    entry = CompiledEntry("test.last", lambda: lambda values: values[-1])
    for dtype in (np.int64, np.uint8, np.int8):
        assert entry(np.array([-1], np.int64).astype(dtype)) == int(np.array(-1).astype(dtype))


def test_what_has_gaps_is_refused() -> None:
    with pytest.raises(ValueError, match="gaps"):
        entries._pack_arguments((np.zeros((4, 4))[:, 1],))
    with pytest.raises(TypeError):
        entries._pack_arguments((1.5,))


@compiled_only
def test_what_needs_numbas_library_is_not_kept(folder: CacheFolder) -> None:
    entry = CompiledEntry("test.exponent", lambda: lambda number: math.frexp(float(number))[1])
    assert entry(1000) == 10
    assert not entry.is_cached()


@compiled_only
def test_a_damaged_kernel_is_compiled_again(folder: CacheFolder) -> None:
    def double(number: int) -> int:
        return 2 * number

    assert CompiledEntry("test.double", lambda: double)(4) == 8
    (path,) = folder.path.glob("test.double-*")
    code = path.read_bytes()
    path.write_bytes(code[:-1] + bytes([code[-1] ^ 1]))
    folder._intact.clear()
    again = CompiledEntry("test.double", lambda: double)
    assert not again.is_cached()
    assert again(4) == 8
    assert again.is_cached()


def test_the_processor_is_the_one_that_numba_compiles_for() -> None:
    from numba.core.registry import cpu_target

    _, name, features = cpu_target.target_context.codegen().magic_tuple()
    assert (get_cpu_name({}), get_cpu_features({})) == (name, features)
    told = {"NUMBA_CPU_NAME": "generic"}
    assert (get_cpu_name(told), get_cpu_features(told)) == ("generic", "")
    assert get_cpu_features({"NUMBA_CPU_FEATURES": "+sse2"}) == "+sse2"
    assert "+avx" not in get_cpu_features({"NUMBA_ENABLE_AVX": "0"})


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a program that halts at once and run it, so that its kernels are cached."""
    path = tmp_path_factory.mktemp("program") / "halt.bin"
    path.write_bytes(
        assemble("_start: nmp.halt", "halt.s", default_device().settings()).build_bundle()
    )
    Device(engine="compiled").run(nmpsim.load(path), {})
    return path


@compiled_only
def test_every_kernel_can_be_kept() -> None:
    for kernel in KERNELS.values():
        kernel.address()
        assert kernel.is_cached(), kernel.name


@compiled_only
@pytest.mark.skipif(sys.platform != "linux", reason="object files of Linux are read")
def test_kept_kernels_need_the_c_library_only(program: Path) -> None:

    from elftools.elf.elffile import ELFFile

    assert CACHE is not None
    for path in CACHE.path.glob("*.kernel"):
        code = path.read_bytes()
        symbols = ELFFile(io.BytesIO(code[code.index(b"\x7fELF") :])).get_section_by_name(".symtab")
        undefined = {s.name for s in symbols.iter_symbols() if s["st_shndx"] == "SHN_UNDEF"}
        assert undefined - {""} <= EXTERNAL_FUNCTIONS, path
        assert symbols.get_symbol_by_name(ENTRY), path


def test_the_check_of_amx_needs_no_numba() -> None:
    code = (
        "import sys, nmpsim.kernels.amx_check as a; a.make_check_module();"
        "print('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@compiled_only
def test_kept_kernels_are_run_without_numba(program: Path) -> None:
    code = (
        "import sys, nmpsim\n"
        f"report = nmpsim.Device(engine='compiled').run(nmpsim.load({str(program)!r}), {{}})\n"
        "print(report.engine, 'numba' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout == "compiled False\n"
