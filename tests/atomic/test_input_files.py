"""Files of a user are read within a limit; what cannot be read is one error."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from nmpsim import load_device
from nmpsim.diagnostics import UserError
from nmpsim.experiments import read_grid
from nmpsim.input_files import read_bytes, read_text, read_toml


def codes(read: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(UserError) as raised:
        read()
    (finding,) = raised.value.diagnostics
    return finding.code, finding.message


def test_a_file_of_the_largest_size_is_read(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"12345678")
    assert read_bytes(path, "thing", 8) == b"12345678"
    found = codes(lambda: read_bytes(path, "thing", 7, "DATA001"))
    assert found == ("DATA001", "the thing is too large")


def test_text_is_normalized(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
    assert read_text(path, "thing") == "a\nb\nc\n"


@pytest.mark.parametrize(
    ("name", "reason"), [("missing", "No such file or directory"), (".", "Is a directory")]
)
def test_unreadable_files_are_errors(tmp_path, name, reason):
    found = codes(lambda: read_bytes(tmp_path / name, "thing", 8))
    assert found == ("FILE001", f"cannot read the thing: {reason}")


def test_text_of_another_encoding_is_an_error(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("é".encode("latin-1"))
    assert codes(lambda: read_toml(path, "thing", "DEV001")) == (
        "DEV001",
        "the thing is not UTF-8 text",
    )


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no endless file")
@pytest.mark.parametrize(
    ("read", "code"), [(load_device, "DEV001"), (read_grid, "GRID001")], ids=["device", "grid"]
)
def test_an_endless_file_is_too_large(read, code):
    assert codes(lambda: read(Path("/dev/zero")))[0] == code


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with a name")
def test_a_pipe_is_read_to_its_end(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"x" * 100_000,))
    writer.start()
    assert len(read_bytes(path, "thing", 1 << 20)) == 100_000
    writer.join()
