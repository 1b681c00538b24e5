"""A bundle that was built is the bundle that is read."""

import io
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from nmpsim.bundle import Metadata, parse_bundle, read_bundle
from nmpsim.bundle.layout import RW_BASE, RW_LIMIT
from nmpsim.bundle.write import BundleBuilder, write_bundle
from nmpsim.diagnostics import UserError
from nmpsim.isa.table import DRAM_BASE

NOTHING = Metadata("p", "p.lir", "nmp", {}, (), (), (), ())


@pytest.fixture
def path(tmp_path: Path, bundle_bytes: bytes) -> Path:
    write_bundle(tmp_path / "net.bin", bundle_bytes)
    return tmp_path / "net.bin"


def test_a_written_bundle_is_read_back(path: Path, metadata: Metadata):
    bundle = read_bundle(path)
    assert bundle.metadata == metadata
    assert bundle.image_base == DRAM_BASE
    assert (bundle.rw_base, bundle.rw_bytes) == (RW_BASE, 168)
    assert bundle.path == str(path)
    assert len(bundle.digest) == 64
    ((start, end),) = bundle.text
    assert bundle.sections[".text"] == (start, end)
    assert bundle.symbols["start"] == start
    assert bundle.symbols["scores_view"] == bundle.symbols["scores"]
    assert bundle.symbol_sizes["scores_view"] == 40


def test_constants_lie_at_their_symbols(path: Path):
    bundle = read_bundle(path)
    at = bundle.symbols["bias ä #1"] - bundle.image_base
    assert at % 64 == 0
    assert bundle.symbol_sizes["bias ä #1"] == 12
    np.testing.assert_array_equal(bundle.image[at : at + 12].view("<i4"), [0, 1, 2])


def test_the_image_is_private(path: Path, bundle_bytes: bytes):
    bundle = read_bundle(path)
    assert bundle.image.dtype == np.uint8
    assert bundle.image.flags.writeable
    assert not bundle.image.flags.owndata
    assert bundle.image.ctypes.data % 64 == 0
    bundle.image[:] = 0
    assert path.read_bytes() == bundle_bytes


@pytest.mark.parametrize("offset", range(1, 64, 9))
def test_a_bundle_from_bytes_is_aligned(bundle_bytes: bytes, offset: int):
    bundle = parse_bundle(memoryview(b"-" * offset + bundle_bytes)[offset:])
    assert bundle.image.ctypes.data % 64 == 0


def test_checked_bytes_are_used(path: Path, bundle_bytes: bytes):
    changed, emptied = read_bundle(path), read_bundle(path)
    with path.open("r+b") as file:
        file.write(b"x" * len(bundle_bytes))
    assert bytes(changed.file) == bundle_bytes
    os.truncate(path, 0)
    assert bytes(emptied.file) == bundle_bytes
    assert bytes(emptied.image) in bundle_bytes


def test_a_file_truncated_during_reading_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch):
    size = path.stat().st_size
    monkeypatch.setattr("os.fstat", lambda fd, old=os.fstat: _cut(path, old(fd)))
    with pytest.raises(UserError, match="BUN00"):
        read_bundle(path)
    assert path.stat().st_size < size


def _cut(path: Path, status: os.stat_result) -> os.stat_result:
    os.truncate(path, status.st_size // 2)
    return status


def test_the_same_parts_give_the_same_file(build_with, bundle_bytes: bytes):
    assert build_with() == bundle_bytes
    assert parse_bundle(bundle_bytes).digest != parse_bundle(build_with(program="x")).digest


def test_the_builder_returns_addresses_immediately():
    builder = BundleBuilder()
    first = builder.add_constant("a", b"12345")
    second = builder.add_constant("b", np.array([1, 2], ">i2"), alignment=16)
    assert second == first + 16
    assert builder.reserve("x", 10) == RW_BASE
    assert builder.reserve("y", 1, alignment=4) == RW_BASE + 12
    third = builder.add_descriptor(bytes(16), "d")
    assert third % 64 == 0
    assert builder.get_code_address() == third + 64
    assert builder.add_code(np.array([0x13], np.uint32), "start") == third + 64
    assert builder.get_code_address() == third + 68
    builder.define_symbol("one", 1)
    bundle = parse_bundle(builder.build_file(NOTHING))
    at = second - bundle.image_base
    assert bundle.image[at : at + 4].tolist() == [1, 0, 2, 0]
    assert bundle.symbols["one"] == 1


def test_an_empty_bundle_can_be_made():
    bundle = parse_bundle(BundleBuilder().build_file(NOTHING))
    assert bundle.text == ()
    assert bundle.symbols == {}
    assert bundle.rw_bytes == 0


def test_misuse_of_the_builder_is_an_internal_error():
    builder = BundleBuilder()
    builder.add_descriptor(bytes(4))
    with pytest.raises(RuntimeError, match="constants is closed"):
        builder.add_constant("late", b"1")
    builder.add_code([0x13])
    with pytest.raises(RuntimeError, match="descriptors is closed"):
        builder.add_descriptor(bytes(4))
    builder.define_symbol("a", 0)
    problems = {
        "a": "'a' is already defined",
        "": "name of a symbol is empty",
        "b\0": "contains a NUL",
    }
    for name, text in problems.items():
        with pytest.raises(RuntimeError, match=text):
            builder.define_symbol(name, 4)


def test_too_large_parts_are_user_errors():
    builder = BundleBuilder()
    with pytest.raises(UserError, match="COMP002"):
        builder.reserve("x", RW_LIMIT + 1)
    chunk = memoryview(bytes(1 << 26))
    with pytest.raises(UserError, match="read-only part of the bundle is too large"):
        for n in range(9):
            builder.add_constant(str(n), chunk)


def test_a_bundle_is_written_completely_or_not_at_all(tmp_path: Path, bundle_bytes: bytes):
    with pytest.raises(UserError, match="FILE002"):
        write_bundle(tmp_path / "missing" / "net.bin", bundle_bytes)
    target = tmp_path / "folder"
    target.mkdir()
    (target / "kept").touch()
    with pytest.raises(UserError, match="FILE002"):
        write_bundle(target, bundle_bytes)
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
    write_bundle(tmp_path / "net.bin", b"old")
    write_bundle(tmp_path / "net.bin", bundle_bytes)
    assert (tmp_path / "net.bin").read_bytes() == bundle_bytes
    assert len(list(tmp_path.iterdir())) == 2


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path, bundle_bytes: bytes):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "real.bin", tmp_path / "net.bin"
    link.symlink_to(target)
    for before in (None, b"old"):
        if before is not None:
            target.write_bytes(before)
        write_bundle(link, bundle_bytes)
        assert link.is_symlink()
        assert target.read_bytes() == bundle_bytes
    assert [p.name for p in target.parent.iterdir()] == ["real.bin"]


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path, linked: bool):
    pipe, path = tmp_path / "pipe", tmp_path / "link" if linked else tmp_path / "pipe"
    os.mkfifo(pipe)
    if linked:
        path.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_bundle(path, b"a bundle")
    assert pipe.is_fifo()
    assert os.read(reader, 100) == b"a bundle"
    os.close(reader)
    assert len(list(tmp_path.iterdir())) == 1 + linked


def test_unreadable_files_are_errors(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path / "missing.bin", tmp_path, pipe, Path("nul\0")):
        with pytest.raises(UserError) as raised:
            read_bundle(path)
        assert [d.code for d in raised.value.diagnostics] == ["FILE001"], path


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_a_file_without_permission_is_an_error(path: Path):
    path.chmod(0)
    with pytest.raises(UserError, match="FILE001"):
        read_bundle(path)


def test_another_elf_reader_agrees(bundle_bytes: bytes):
    elf = ELFFile(io.BytesIO(bundle_bytes))
    bundle = parse_bundle(bundle_bytes)
    symbols = {
        s.name: s["st_value"] for s in elf.get_section_by_name(".symtab").iter_symbols() if s.name
    }
    assert symbols == bundle.symbols
    assert elf["e_entry"] == bundle.symbols["start"]
    for segment in elf.iter_segments():
        if segment["p_filesz"]:
            at = segment["p_vaddr"] - bundle.image_base
            assert bundle.image[at : at + segment["p_filesz"]].tobytes() == segment.data()
    for name, (start, end) in bundle.sections.items():
        section = elf.get_section_by_name(name)
        assert (section["sh_addr"], section["sh_addr"] + section["sh_size"]) == (start, end)


def test_a_large_bundle_is_read_once(tmp_path: Path):
    builder = BundleBuilder()
    builder.add_constant("weights", np.zeros(25_000_000, np.int8))
    for n in range(2000):
        builder.define_symbol(f"symbol {n}", DRAM_BASE + n)
    path = tmp_path / "large.bin"
    write_bundle(path, bytes(builder.build_file(NOTHING)))
    tracemalloc.start()
    bundle = read_bundle(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert bundle.image.size > 25_000_000
    assert peak < 30_000_000


def test_importing_the_package_is_light():
    code = (
        "import sys, numpy; before = set(sys.modules); import nmpsim.bundle;"
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"cattrs", "elftools", "numba"} & {m.split(".")[0] for m in done.stdout.split()}
