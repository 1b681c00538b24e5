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
        found = document.get("schema") if isinstance(document, dict) else None
        raise _no_patch(path, f"the schema {found!r}"[:120])
    changes = document.get("changes")
    if not isinstance(changes, list):
        found = f"changes of type {type(changes).__name__}"
        raise _no_patch(path, found, "a list of changes")
    if len(changes) > MAX_CHANGES:
        raise _no_patch(path, f"{len(changes)} changes", f"at most {MAX_CHANGES} changes")
    return tuple(_change(one, path) for one in changes)


def _change(one: Any, path: Path) -> ByteChange:
    if not isinstance(one, dict) or set(one) != ChangeDocument.__required_keys__:
        expected = f"an object with the fields {', '.join(ChangeDocument.__annotations__)}"
        raise _no_patch(path, f"the change {one!r}"[:120], expected)
    address, texts = one["address"], [one[name] for name in ("old", "new", "description")]
    if not isinstance(address, int) or isinstance(address, bool):
        raise _no_patch(path, f"the address {address!r}"[:120], "an integer")
    for text in texts:
        if not isinstance(text, str):
            found = f"the value {text!r} in the change at {address:#x}"
            raise _no_patch(path, found[:120], "text in old, new and description")
    try:
        old, new = bytes.fromhex(texts[0]), bytes.fromhex(texts[1])
    except ValueError:
        found = f"the bytes {texts[0]!r} and {texts[1]!r} in the change at {address:#x}"
        raise _no_patch(path, found[:120], "hexadecimal digits") from None
    if len(old) != len(new):
        found = f"{len(old)} old and {len(new)} new bytes in the change at {address:#x}"
        raise _no_patch(path, found, "equal numbers of old and new bytes")
    return ByteChange(address, old, new, texts[2])


def _no_patch(
    path: Path, found: str, expected: str = f"a JSON file with the schema {SCHEMA}"
) -> UserError:
    return fail(
        "PATCH001",
        "this is not a patch",
        place=Place(str(path)),
        found=found,
        expected=expected,
        hint="Use a file that `export` of `nmpsim debug` has written.",
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
        raise fail(
            "BUN001",
            "this is not a bundle",
            place=Place(path),
            found=f"a section {DIGEST} of {digest.nbytes} bytes"
            if digest
            else f"no section {DIGEST}",
            expected=f"a section {DIGEST} of {DIGEST_BYTES} bytes",
            hint="Use a file written by `nmpsim compile` or `nmpsim asm`.",
        )
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
    raise _other_bundle(path, change, "no contents of the bundle")


def _other_bundle(path: str, change: ByteChange, found: str) -> UserError:
    return fail(
        "PATCH002",
        f"the patch belongs to another bundle: {change.description}",
        place=Place(path),
        found=f"{found} at {change.address:#x}",
        expected=change.old.hex(),
        hint="Compile the network with the options and version that the patch was made for.",
    )
