"""Patches: changed bytes of a bundle's memory, with the bytes that they replace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict

import attrs

from nmpsim.atomic import write_file
from nmpsim.bundle.elffile import ElfFile
from nmpsim.bundle.file import DIGEST_BYTES, compute_digest
from nmpsim.bundle.layout import DIGEST
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.input_files import read_bytes

SCHEMA: Final = "nmpsim-patch-2"
MAX_PATCH_BYTES = 16 << 20
MAX_CHANGES = 1 << 18


class ChangeDocument(TypedDict):
    """JSON form of a change."""

    address: int
    old: Annotated[str, "replaced bytes, in hexadecimal"]
    new: Annotated[str, "new bytes, as many as in `old`"]
    description: Annotated[str, "description for users"]


class PatchDocument(TypedDict):
    """JSON form of a patch, as written by the debugger's `export`."""

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


def save_patch(path: Path, changes: tuple[ByteChange, ...]) -> None:
    """Write changes to a patch file."""
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
    """Read the changes of a patch file.

    Raises
    ------
    UserError
        FILE001 if the file cannot be read, PATCH001 if it is not a patch.
    """
    data = read_bytes(path, "patch", MAX_PATCH_BYTES, "PATCH001")
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _no_patch(path, str(error)[:120]) from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise _no_patch(path, f"a schema other than {SCHEMA}")
    changes = document.get("changes")
    if not isinstance(changes, list) or len(changes) > MAX_CHANGES:
        raise _no_patch(path, f"changes that are not a list of at most {MAX_CHANGES}")
    return tuple(_change(one, path) for one in changes)


def _change(one: Any, path: Path) -> ByteChange:
    if not isinstance(one, dict) or set(one) != ChangeDocument.__required_keys__:
        raise _no_patch(
            path, f"a change with other fields than {', '.join(ChangeDocument.__annotations__)}"
        )
    address, texts = one["address"], [one[name] for name in ("old", "new", "description")]
    is_address = isinstance(address, int) and not isinstance(address, bool)
    if not is_address or not all(isinstance(text, str) for text in texts):
        raise _no_patch(
            path, "an address that is not a number, or another field that is not a text"
        )
    try:
        old, new = bytes.fromhex(texts[0]), bytes.fromhex(texts[1])
    except ValueError:
        raise _no_patch(path, "bytes that are not hexadecimal") from None
    if len(old) != len(new):
        raise _no_patch(path, "a different number of new and old bytes")
    return ByteChange(address, old, new, texts[2])


def _no_patch(path: Path, found: str) -> UserError:
    return fail(
        "PATCH001",
        "this is not a patch",
        place=Place(str(path)),
        found=found,
        expected="what `export` of `nmpsim debug` writes",
    )


def apply_patch(data: bytes, changes: tuple[ByteChange, ...], path: str) -> bytes:
    """Return a bundle's bytes with changes applied and the digest updated.

    Raises
    ------
    UserError
        PATCH002 if the patch belongs to another bundle, BUN001 or BUN002 if ``data`` is not a
        bundle.
    """
    file, patched = ElfFile(memoryview(data), path), bytearray(data)
    digest = file.sections.get(DIGEST)
    if digest is None or digest.nbytes != DIGEST_BYTES:
        raise fail("BUN001", "this is not a bundle", place=Place(path))
    for change in changes:
        offset = _offset(file, change, path)
        found = bytes(data[offset : offset + len(change.old)])
        if found != change.old:
            raise _other_bundle(path, change, found.hex())
        patched[offset : offset + len(change.new)] = change.new
    at = digest.offset
    patched[at : at + DIGEST_BYTES] = compute_digest(memoryview(patched), at)
    return bytes(patched)


def _offset(file: ElfFile, change: ByteChange, path: str) -> int:
    for segment in file.segments:
        start = change.address - segment.address
        if start >= 0 and start + len(change.old) <= segment.file_bytes:
            return segment.offset + start
    raise _other_bundle(path, change, "nothing")


def _other_bundle(path: str, change: ByteChange, found: str) -> UserError:
    return fail(
        "PATCH002",
        f"the patch belongs to another bundle: {change.description}",
        place=Place(path),
        found=f"{found} at {change.address:#x}",
        expected=change.old.hex(),
        hint="Compile the network with the options and version that the patch was made for.",
    )
