"""The file of a bundle as pieces that are never in memory all at once, and its digest.

The digest is SHA-256 over the file, in which its own 32 bytes count as zero.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence

from nmpsim.bundle.check import MemoryRanges, check_metadata
from nmpsim.bundle.elf import Buffer, LazyBytes, resolve_buffer
from nmpsim.bundle.metadata import Metadata
from nmpsim.bundle.schema import format_metadata, parse_metadata
from nmpsim.diagnostics import Place
from nmpsim.records import frozen

DIGEST_BYTES = 32


def compute_digest(file: memoryview, offset: int) -> bytes:
    """Compute the SHA-256 of a file, with zeros in place of the digest stored at ``offset``."""
    hasher = hashlib.sha256(file[:offset])
    hasher.update(bytes(DIGEST_BYTES))
    hasher.update(file[offset + DIGEST_BYTES :])
    return hasher.digest()


@frozen(eq=False)
class BundleFile:
    """Bundle in memory that can be written to a file.

    It keeps references to the arrays that it is made from, which must not change. Packed weights
    are made when the file is written, one piece at a time.
    """

    metadata: Metadata
    memory: MemoryRanges
    """Address ranges of the device's memory."""
    head: Sequence[Buffer | LazyBytes]
    """Pieces before the digest."""
    tail: bytes
    """Bytes after the digest."""

    @property
    def nbytes(self) -> int:
        """Size of the file in bytes."""
        return sum(map(len, self.head)) + DIGEST_BYTES + len(self.tail)

    def write(self, emit: Callable[[Buffer], object]) -> str:
        """Pass the bytes of the file to ``emit`` in pieces; return the digest in hexadecimal."""
        hasher = hashlib.sha256()
        for piece in map(resolve_buffer, self.head):
            hasher.update(piece)
            emit(piece)
        hasher.update(bytes(DIGEST_BYTES) + self.tail)
        emit(hasher.digest())
        emit(self.tail)
        return hasher.hexdigest()

    def write_into(self, memory: memoryview) -> None:
        """Write the bytes of the file into ``memory``, a buffer of ``nbytes`` bytes."""
        at = 0

        def append_piece(piece: Buffer) -> None:
            nonlocal at
            memory[at : at + len(piece)] = piece
            at += len(piece)

        self.write(append_piece)

    def check(self, path: str) -> None:
        """Raise UserError (BUN002) if a reader would refuse the metadata.

        Only the metadata depend on the network; the layout of the file is always valid.
        """
        place = Place(path)
        check_metadata(parse_metadata(format_metadata(self.metadata), place), self.memory, place)

    def __bytes__(self) -> bytes:
        held = io.BytesIO()
        held.seek(self.nbytes - 1)
        held.write(b"\0")  # the final size at once, since growing takes more memory
        held.seek(0)
        self.write(held.write)
        return held.getvalue()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the file as bytes."""
        whole = b"".join(map(resolve_buffer, self.head))
        return BundleFile, (self.metadata, self.memory, (whole,), self.tail)
