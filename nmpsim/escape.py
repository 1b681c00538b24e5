"""Escaping of text from files and other tools, before it is shown.

Every view, error and trace escapes text with this module, so that no character controls a terminal,
changes the direction of writing, or makes a CI system run a command. The module imports nothing of
nmpsim.
"""

from __future__ import annotations

import re

_UNSEEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for tab and newline
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # they turn the direction of writing
    "\u200b-\u200d\u2028\u2029\u2060-\u2064\ufeff\ufff9-\ufffb"  # no width, or a line's end
    "\ud800-\udfff\ufffe\uffff"  # no characters, such as half of a surrogate pair
    "\U000e0000-\U000e007f"  # tags, which nothing shows
    "]"
)
# What GitHub's runner takes for a command at the start of a line, and it and Azure's anywhere.
_AT_START = re.compile(r"^([^\S\n]*)::", re.MULTILINE)
_ANYWHERE = re.compile(r"##(?=\[|vso\[)", re.IGNORECASE)


_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~$&])")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a formula in a spreadsheet."""


def escape(text: str) -> str:
    """Escape invisible characters and CI commands in a text, except tabs and newlines."""
    text = _ANYWHERE.sub(r"#\\x23", _UNSEEN.sub(_escape, text))
    return _AT_START.sub(r"\1\\x3a:", text)


def escape_line(text: str) -> str:
    """Escape a text and convert it to a single line."""
    return escape(text.replace("\n", "\\n").replace("\t", " "))


def escape_markdown(text: str) -> str:
    """Escape a text for one line of Markdown, including HTML and mentions of users."""
    escaped = _MARKDOWN.sub(r"\\\1", escape_line(" ".join(text.split())))
    return escaped.replace("@", "@&#8203;")  # a backslash does not keep @name from a mention


def escape_csv(value: object) -> object:
    """Escape a value for a CSV file so that no spreadsheet evaluates it as a formula."""
    is_formula = isinstance(value, str) and value.lstrip("'").startswith(_FORMULA)
    return f"'{value}" if is_formula else value


def unescape_csv(text: str) -> str:
    """Undo :func:`escape_csv` and return the original text."""
    return text[1:] if text.startswith("'") and escape_csv(text[1:]) == text else text


def escape_json(text: str) -> str:
    """Escape CI commands in the strings of an ASCII-only JSON text."""
    return _ANYWHERE.sub(r"#\\u0023", text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
