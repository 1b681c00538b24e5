"""GNU's readelf and objdump work on a bundle and have nothing to complain about."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nmpsim.bundle import parse_bundle

PREFIX = "riscv64-unknown-elf-"
pytestmark = pytest.mark.skipif(
    not shutil.which(PREFIX + "readelf"), reason="GNU binutils for RISC-V are not installed"
)


def _run(tool: str, *arguments: str) -> str:
    done = subprocess.run(
        [PREFIX + tool, *arguments], capture_output=True, text=True, check=True, errors="replace"
    )
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def path(tmp_path: Path, bundle_bytes: bytes) -> Path:
    path = tmp_path / "net.bin"
    path.write_bytes(bundle_bytes)
    return path


def test_readelf_reads_a_bundle(path: Path, bundle_bytes: bytes):
    text = _run("readelf", "-aW", str(path))
    assert "warning" not in text.lower()
    assert re.search(r"00 +\.constants \.descriptors", text)
    assert re.search(r"01 +\.text", text)
    assert re.search(r"02 +\.activations", text)
    start = parse_bundle(bundle_bytes).symbols["start"]
    assert re.search(rf"{start:08x} +\d+ FUNC +GLOBAL DEFAULT +3 start", text)
    assert re.search(r"70 OBJECT +GLOBAL DEFAULT +1 conv/weights", text)


def test_objdump_disassembles_a_bundle(path: Path):
    text = _run("objdump", "-d", str(path))
    assert "<start>:" in text
    assert "<rest>:" in text
    assert "lui" in text
