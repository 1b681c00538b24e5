"""The digest that tells a damaged bundle: SHA-256 over the whole file.

The 32 bytes that hold the digest count as zero.
"""

from __future__ import annotations

import hashlib

DIGEST_BYTES = 32


def digest_of_file(file: memoryview, offset: int) -> bytes:
    """Digest of a file that holds its own digest at ``offset``."""
    hasher = hashlib.sha256(file[:offset])
    hasher.update(bytes(DIGEST_BYTES))
    hasher.update(file[offset + DIGEST_BYTES :])
    return hasher.digest()
