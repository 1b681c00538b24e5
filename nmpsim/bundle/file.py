"""A bundle's file in pieces: whole, but never in memory as a whole; and its digest.

The digest is SHA-256 over the file, whose own 32 bytes count as zero.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence

from nmpsim.bundle.check import Memory, check_metadata
from nmpsim.bundle.elf import Buffer, LazyBytes, materialize
from nmpsim.bundle.metadata import Metadata
from nmpsim.bundle.schema import metadata_from_json, metadata_to_json
from nmpsim.diagnostics import Place
from nmpsim.records import frozen

DIGEST_BYTES = 32


def digest_of_file(file: memoryview, offset: int) -> bytes:
    """Digest of a file that holds its own digest at ``offset``."""
    hasher = hashlib.sha256(file[:offset])
    hasher.update(bytes(DIGEST_BYTES))
    hasher.update(file[offset + DIGEST_BYTES :])
    return hasher.digest()


@frozen(eq=False)
class BundleFile:
    """A file to write, any number of times; ``bytes`` of it are the file's.

    It keeps the arrays that it is made from, which must not change any more, and makes of them what
    the file has when that is written: packed weights, too, are in memory one piece at a time.
    """

    metadata: Metadata
    memory: Memory
    """Where the device has what."""
    head: Sequence[Buffer | LazyBytes]
    """All before the digest."""
    tail: bytes
    """All behind it."""

    @property
    def nbytes(self) -> int:
        """Of the file."""
        return sum(map(len, self.head)) + DIGEST_BYTES + len(self.tail)

    def write(self, put: Callable[[Buffer], object]) -> str:
        """Give the file's bytes to ``put``, piece by piece; its digest, in hexadecimal."""
        hasher = hashlib.sha256()
        for piece in map(materialize, self.head):
            hasher.update(piece)
            put(piece)
        hasher.update(bytes(DIGEST_BYTES) + self.tail)
        put(hasher.digest())
        put(self.tail)
        return hasher.hexdigest()

    def fill(self, memory: memoryview) -> None:
        """Write the file into ``nbytes`` of memory."""
        at = 0

        def put(piece: Buffer) -> None:
            nonlocal at
            memory[at : at + len(piece)] = piece
            at += len(piece)

        self.write(put)

    def check(self, path: str) -> None:
        """Raise UserError BUN002 for what :func:`~nmpsim.bundle.read_bundle` would refuse.

        Only of the metadata, which depend on the network: the layout is always the same.
        """
        place = Place(path)
        check_metadata(
            metadata_from_json(metadata_to_json(self.metadata), place), self.memory, place
        )

    def __bytes__(self) -> bytes:
        held = io.BytesIO()
        held.seek(self.nbytes - 1)
        held.write(b"\0")  # as large as it will be: growing would take more memory
        held.seek(0)
        self.write(held.write)
        return held.getvalue()

    def __reduce__(self) -> tuple[object, ...]:
        """To another process as bytes."""
        whole = b"".join(map(materialize, self.head))
        return BundleFile, (self.metadata, self.memory, (whole,), self.tail)
