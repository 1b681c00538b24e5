"""The digest that tells a damaged bundle: SHA-256 over the whole file.

The 32 bytes that hold the digest count as zero.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from nmpsim.bundle.elf import Buffer

DIGEST_BYTES = 32


def digest_of(chunks: Iterable[Buffer]) -> bytes:
    """SHA-256 of the chunks as one."""
    hasher = hashlib.sha256()
    for chunk in chunks:
        hasher.update(chunk)
    return hasher.digest()


def digest_of_file(file: memoryview, offset: int) -> bytes:
    """Digest of a file that holds its own digest at ``offset``."""
    return digest_of((file[:offset], bytes(DIGEST_BYTES), file[offset + DIGEST_BYTES :]))
