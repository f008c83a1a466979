"""Escapes in users' text: characters that could hide, move or end other text become visible."""

from __future__ import annotations

import re

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_C_TRAPS = re.compile(r"(?<=\*)/|(?<=\?)\?(?=/)|\\(?=[\s\\]*\Z)")
"""The end of a comment, the trigraph of a backslash, and a backslash before the end of the line."""


def visible(text: str) -> str:
    """Return text on one line, with all invisible characters as `\\x1b`, `\\u202e`, ...

    These are controls, line ends, marks of direction, lone surrogates (undecodable bytes of a
    path), and unassigned code points.
    """
    return text if text.isprintable() else "".join(map(_visible, text))


def quoted(text: str) -> str:
    """Return text as a double-quoted literal that YAML and Python read alike."""
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{visible(inner)}"'


def c_comment(text: str) -> str:
    """Return text for a comment of CUDA C++: on one line, which it cannot join with the next."""
    return _C_TRAPS.sub(lambda found: f"\\x{ord(found[0]):02x}", visible(text))


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x100:
        return _SHORT.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
