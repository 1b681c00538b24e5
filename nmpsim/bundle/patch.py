"""Patches: changed bytes of a bundle's memory, with the bytes that they replace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final, Literal, TypedDict

import attrs

from nmpsim.atomic import write_file
from nmpsim.bundle.elffile import ElfFile
from nmpsim.bundle.file import DIGEST_BYTES, compute_digest
from nmpsim.bundle.layout import DIGEST
from nmpsim.bundle.limits import JSON_BYTES, Limit
from nmpsim.bundle.read import get_required_section
from nmpsim.bundle.schema import parse_record_file
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.input_files import read_bytes

SCHEMA: Final = "nmpsim-patch-2"
MAX_CHANGES = Limit("changes", 0, 1 << 18)


class ChangeDocument(TypedDict):
    """JSON object of a :class:`ByteChange`, with its bytes in hexadecimal."""

    address: int
    old: Annotated[str, "replaced bytes, in hexadecimal"]
    new: Annotated[str, "new bytes, as many as in `old`"]
    description: Annotated[str, "description for users"]


class PatchDocument(TypedDict):
    """JSON object of a patch file, as written by the debugger's `export`."""

    schema: Literal["nmpsim-patch-2"]
    changes: list[ChangeDocument]


@attrs.frozen
class ByteChange:
    """Change of bytes in the read-only memory of a bundle."""

    address: int
    old: bytes
    new: bytes
    """New bytes, as many as in ``old``."""
    description: str
    """Description for users."""

    def __attrs_post_init__(self) -> None:
        if len(self.old) != len(self.new):
            count = f"{len(self.old)} old and {len(self.new)} new bytes"
            raise ValueError(f"the change at {self.address:#x} has {count}")


@attrs.frozen
class _Patch:
    """Contents of a patch file without the schema."""

    changes: Annotated[tuple[ByteChange, ...], MAX_CHANGES]


def save_patch(path: Path, changes: tuple[ByteChange, ...]) -> None:
    """Save changes of a bundle's memory as a patch file in JSON."""
    listed: list[ChangeDocument] = [
        {
            "address": change.address,
            "old": change.old.hex(),
            "new": change.new.hex(),
            "description": change.description,
        }
        for change in changes
    ]
    document: PatchDocument = {"schema": SCHEMA, "changes": listed}
    text = json.dumps(document, indent=1) + "\n"
    write_file(path, text)


def load_patch(path: Path) -> tuple[ByteChange, ...]:
    """Load the changes of a patch file; raise UserError if it is not a patch.

    Raises
    ------
    UserError
        FILE001 if the file cannot be read, PATCH001 if it is not a patch.
    """
    data = read_bytes(path, "patch", JSON_BYTES.high, "PATCH001")
    hint = "Use a file that `export` of `nmpsim debug` has written."
    patch = parse_record_file(
        data, _Patch, SCHEMA, Place(str(path)), "PATCH001", "this is not a patch", hint
    )
    return patch.changes


def apply_patch(data: bytes, changes: tuple[ByteChange, ...], path: str) -> bytes:
    """Apply changes to the bytes of a bundle; return the new bytes with an updated digest.

    Raises
    ------
    UserError
        PATCH002 if the patch belongs to another bundle, BUN001 or BUN002 if ``data`` is not a
        bundle.
    """
    file, patched = ElfFile(memoryview(data), path), bytearray(data)
    for change in changes:
        offset = _offset(file, change, path)
        found = bytes(data[offset : offset + len(change.old)])
        if found != change.old:
            raise _other_bundle(path, change, f"the bytes {found.hex()}")
        patched[offset : offset + len(change.new)] = change.new
    at = get_required_section(file, DIGEST).offset
    patched[at : at + DIGEST_BYTES] = compute_digest(memoryview(patched), at)
    return bytes(patched)


def _offset(file: ElfFile, change: ByteChange, path: str) -> int:
    for segment in file.segments:
        start = change.address - segment.address
        if start >= 0 and start + len(change.old) <= segment.file_bytes:
            return segment.offset + start
    raise _other_bundle(path, change, "no contents of the bundle")


def _other_bundle(path: str, change: ByteChange, found: str) -> UserError:
    return fail(
        "PATCH002",
        f"the patch belongs to another bundle: {change.description}",
        place=Place(path),
        found=f"{found} at {change.address:#x}",
        expected=f"the bytes {change.old.hex()}",
        hint="Compile the network with the options and version that the patch was made for.",
    )
