"""Device files."""

from __future__ import annotations

from collections.abc import Iterator

from nmpsim.config import load_device, make_device_config

from ..mutate import FLOATS, INTEGERS, TEXTS, make_text_mutator
from ..target import ROOT, Target, allow_errors, write_file

PIECES = (
    *map(str, (*INTEGERS, *FLOATS)), *(f'"{text}"' for text in TEXTS), "[cores]", "[[cores]]", "=",
    "[", "]", "{", "}", ".", "#", "true", "1979-05-27", "'''", '"""', "\\u0000", "\ufeff", "\r\n",
    "count = 1", "cores.count = 2", "value = 1", "source = 'x'", "nan", "0x7f", "1_000",
)  # fmt: skip


def run(data: bytes) -> None:
    """Read a device and read its settings again."""
    with allow_errors("DEV", "FILE001"):
        device = load_device(write_file(data, "device.toml"))
        assert make_device_config(device.settings()).settings() == device.settings()


def seeds() -> Iterator[bytes]:
    """Yield the default device and a small one."""
    yield (ROOT / "nmpsim" / "nmp.toml").read_bytes()
    yield (ROOT / "programs" / "ci" / "board.toml").read_bytes()


TARGET = Target(run, seeds, make_text_mutator(PIECES))
