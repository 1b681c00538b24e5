"""Mutators that keep the structure of JSON, text and archives; all use the given generator."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

INTEGERS = (
    0, 1, -1, 2, 3, 7, 8, 63, 64, 65, 127, 128, 255, 256, -128, -129, 32767, 32768, 65535, 65536,
    2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64,
    -(2**63) - 1, 10**30, 0x8000_0000, 0xA000_0000, 0x2000_0000,
)  # fmt: skip
FLOATS = (0.0, -0.0, 0.5, 1e-45, 1e38, 1e39, 1e308, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "", " ", "0", "a", "\0", "\x1b[31m", "‮", "<script>", "&amp;", "../../x", "%s", "{}", "é",
    "nan", "x" * 300, "'\"", "\n", "conv*", "i8", "i16", "i32", "float", "host", "device",
)  # fmt: skip
VALUES = (*INTEGERS, *FLOATS, *TEXTS, None, True, False, [], {}, [[]], [{}], {"": 0})


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """Replace, insert, remove or repeat some bytes."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4, 8))):
        at, size = random.randint(0, len(changed)), random.choice((1, 1, 2, 4, 8, 32))
        kind = random.randrange(5)
        if kind == 0 and changed:
            changed[min(at, len(changed) - 1)] ^= 1 << random.randrange(8)
        elif kind == 1:
            changed[at : at + size] = random.randbytes(size)
        elif kind == 2:
            changed[at:at] = random.randbytes(size)
        elif kind == 3:
            del changed[at : at + size]
        else:
            begin = random.randint(0, len(changed))
            changed[at:at] = changed[begin : begin + size]
    return bytes(changed)


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return every (container, key) of a JSON document."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            _places(value[key], found)
    return found


def mutate_json(document: Any, random: Random) -> Any:
    """Change, remove, copy or rename a few values of a document in place, and return it."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        places = _places(document, []) if isinstance(document, (dict, list)) else []
        if not places:
            return random.choice(VALUES)
        holder, key = random.choice(places)
        value = holder[key]
        kind = random.randrange(8)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(key, json.loads(json.dumps(value)))
        elif kind == 2:
            other, name = random.choice(places)
            if name in other if isinstance(other, dict) else name < len(other):
                holder[key] = json.loads(json.dumps(other[name]))
        elif kind == 3 and isinstance(holder, dict):
            holder[random.choice(TEXTS)] = holder.pop(key)
        elif kind in (4, 5) and type(value) is int:
            holder[key] = value + random.choice((1, -1, 2, -2, 64, -64, value, -2 * value))
        elif kind in (4, 5) and type(value) is str:
            holder[key] = mutate_text(value, random, TEXTS)
        else:
            holder[key] = random.choice(VALUES)
    return document


def mutate_json_bytes(data: bytes, random: Random) -> bytes:
    """Mutate the document in a JSON file; raise ValueError if the file is not JSON."""
    return json.dumps(mutate_json(json.loads(data), random)).encode()


def mutate_text(text: str, random: Random, pieces: Sequence[str]) -> str:
    """Insert pieces into a text, or replace parts of it by them."""
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randint(0, len(text))
        length = random.choice((0, 0, 1, 2, 5, 30))
        text = text[:at] + random.choice(pieces) + text[at + length :]
    return text


def mutate_words(text: str, random: Random, pieces: Sequence[str]) -> str:
    """Copy or remove lines of a text, or replace words by its other words or by pieces."""
    lines = text.split("\n")
    for _ in range(random.choice((1, 1, 2, 3))):
        number = random.randrange(len(lines))
        kind = random.randrange(6)
        if kind == 0:
            lines.insert(number, random.choice(lines))
        elif kind == 1 and len(lines) > 1:
            del lines[number]
        else:
            words = lines[number].split(" ")
            other = random.choice(lines).split(" ")
            words[random.randrange(len(words))] = random.choice([*other, *pieces])
            lines[number] = " ".join(words)
    return "\n".join(lines)


def make_text_mutator(pieces: Sequence[str]) -> Callable[[bytes, Random], bytes]:
    """Return a mutator of text files that inserts pieces of their language."""

    def mutate(data: bytes, random: Random) -> bytes:
        text = data.decode("utf-8", "surrogateescape")
        change = random.choice((mutate_words, mutate_words, mutate_text))
        return change(text, random, pieces).encode("utf-8", "surrogateescape")

    return mutate


def mutate_archive(
    data: bytes, random: Random, member_changed: Callable[[str, bytes, Random], bytes]
) -> bytes:
    """Change, remove, copy or rename one member of a zip archive."""
    members: list[tuple[str, bytes]] = []
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for info in archive.infolist():
                with archive.open(info) as file:
                    members.append((info.filename, file.read(1 << 20)))
    except (OSError, RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise ValueError("no archive") from error
    if not members:
        raise ValueError("an empty archive")
    number, kind = random.randrange(len(members)), random.randrange(10)
    name, contents = members[number]
    if kind == 0:
        del members[number]
    elif kind == 1:
        members.append((random.choice((name, name + "x", "../x.npy")), contents))
    elif kind == 2:
        members[number] = (random.choice((*TEXTS, "x.npy", name[:-4])), contents)
    else:
        members[number] = (name, member_changed(name, contents, random))
    made = io.BytesIO()
    method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(made, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two members of one name are meant
        for name, contents in members:
            archive.writestr(zipfile.ZipInfo(name), contents, method)
    return made.getvalue()
