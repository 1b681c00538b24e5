"""Test that every number of a bundle has a limit, and that the reader refuses larger values."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from nmpsim.bundle import limits, parse_bundle
from nmpsim.bundle.elffile import ElfFile
from nmpsim.bundle.schema import format_metadata, parse_metadata
from nmpsim.bundle.write import BundleBuilder
from nmpsim.diagnostics import Place, UserError

PAGE = Path(__file__).parents[2] / "docs" / "bundle.md"


def test_the_page_lists_the_table() -> None:
    text = re.search(r"<!-- limits -->\n(.*)<!-- end of limits -->", PAGE.read_text(), re.DOTALL)
    assert text is not None
    rows = [f"| {one.what} | {one.low:,} | {one.high:,} |" for one in limits.TABLE]
    head = ["| number | at least | at most |", "| --- | ---: | ---: |"]
    assert text[1].split("\n") == ["", *head, *rows, "", ""]


HOSTILE = [
    (("inputs", 0, "address"), 1 << 32),
    (("inputs", 0, "address"), -1),
    (("inputs", 0, "offset"), 1 << 31),
    (("layers", 0, "number"), 1 << 31),
    (("layers", 0, "number"), -1),
    (("layers", 0, "line"), 1 << 40),
    (("layers", 0, "barrier"), 65_536),
    (("layers", 0, "barrier"), -1),
    (("layers", 0, "macs"), (1 << 62) + 1),
    (("layers", 0, "owned"), [{"descriptor": 0, "begin": 0, "end": 1 << 31}]),
    (("layers", 0, "output", "address"), 1 << 33),
    (("layers", 0, "fused"), ["x"] * 5000),
    (("steps", 0, "entry"), 1 << 32),
    (("steps", 1, "operands"), [{}] * 65),
    (("steps", 1, "operands", 0, "tensor", "offset"), -(1 << 40)),
    (("steps", 1, "attributes", "Kernels"), [1 << 40, 1]),
    (("steps", 1, "attributes", "Kernels"), [1] * 2000),
    (("steps", 1, "attributes", "Deep"), [[[1 << 31]]]),
    (("steps", 1, "attributes", "Group"), -(1 << 33)),
    (("steps", 1, "attributes"), {str(n): n for n in range(65)}),
    (("steps", 1, "layers"), [1] * 70_000),
]


@pytest.mark.parametrize(("path", "value"), HOSTILE)
def test_metadata_beyond_its_limits_is_refused(
    metadata: Any, path: tuple[Any, ...], value: Any
) -> None:
    document = json.loads(format_metadata(metadata))
    target = document
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(UserError) as raised:
        parse_metadata(json.dumps(document).encode(), Place("net.bin"))
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == "BUN002"
    assert diagnostic.found is not None
    assert re.search(r"is (negative, but|outside) the range ", diagnostic.found)
    assert path[0] in diagnostic.found
    assert len(str(diagnostic)) < 1000


def test_an_empty_tensor_has_a_limit_of_channels(build_with: Any, metadata: Any) -> None:
    """It has no elements, but accounts are kept for each of its channels."""
    import attrs

    output = attrs.evolve(metadata.layers[0].output, shape=(0, 1 << 32))
    layers = (attrs.evolve(metadata.layers[0], output=output), metadata.layers[1])
    with pytest.raises(UserError, match="invalid shape"):
        parse_bundle(build_with(layers=layers))


def test_code_outside_the_file_is_refused(bundle_bytes: bytes) -> None:
    from test_bundle_damaged import update_digest

    header = 52 + 32
    assert ElfFile(memoryview(bundle_bytes), "").segments[1].flags & 1
    changed = bytearray(bundle_bytes)
    struct.pack_into("<I", changed, header + 20, 400 << 20)
    with pytest.raises(UserError, match="the file contains 60 of 419430400 bytes of code"):
        parse_bundle(update_digest(bytes(changed)))


def test_too_many_layers_are_not_written(metadata: Any) -> None:
    import attrs

    many = attrs.evolve(
        metadata, layers=metadata.layers * (limits.LAYERS.high // len(metadata.layers) + 1)
    )
    with pytest.raises(UserError) as raised:
        BundleBuilder().build_file(many)
    assert [one.code for one in raised.value.diagnostics] == ["COMP002"]
