"""The text of a kernel without the names in it: equal for kernels that one cubin serves."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256

from fusec.kernel.names import KEYWORDS

_WORD = r"[^\W\d]\w*"
_COMMENT = re.compile(r"[ \t]*//[^\n]*")
_DIRECTIVE = r"^ ?#[^\n]*"
_STRING = r'"[^"\n]*"'
_NUMBER = r"\.?\d(?:[eEpP][+-]|[\w.])*"
_MEMBER = rf"(?:::|\.|->){_WORD}"
# What neither is a variable of the kernel nor could be: a function, a scope, a type.
_FOREIGN = re.compile(rf"({_WORD})(?=\(|::| {_WORD})")
# What a header may call by its name: members and types that a kernel declares for it.
_DECLARED = re.compile(rf"\b(?:static constexpr {_WORD}|using) ({_WORD}) =")
# What a kernel calls, but declares itself.
_LAMBDA = re.compile(rf"\bauto ({_WORD}) = \[")
_TOKEN = re.compile(rf"({_WORD})|{_NUMBER}|{_MEMBER}|{_STRING}|{_DIRECTIVE}", re.MULTILINE)
_SPACES = re.compile(r"[ \t]+")
_MACRO = re.compile(rf"#define ({_WORD})")


def digest_without_names(text: str, entry: str) -> str:
    """Return a digest that texts share which differ in names and comments alone.

    The kernel itself, `entry`, and its variables are numbered by first use; the lines stay as they
    are, as the line table of a cubin counts them. What is not declared in such a text comes from
    the language or from fusec's headers: keywords, macros, and names that are called, scoped,
    members or types. Those are kept, so that texts with equal digests mean the same.
    """
    text = _SPACES.sub(" ", _COMMENT.sub("", text))
    kept = {*_FOREIGN.findall(text), *_DECLARED.findall(text), *KEYWORDS, *_macros()}
    kept -= {entry, *_LAMBDA.findall(text)}
    numbers: dict[str, str] = {}

    def nameless(match: re.Match[str]) -> str:
        word = match[1]
        if word is None:
            return match[0]
        if word in kept or word.startswith("__"):
            return word
        return numbers.setdefault(word, f"%{len(numbers)}")

    return sha256(_TOKEN.sub(nameless, text).encode()).hexdigest()


@cache
def _macros() -> frozenset[str]:
    """Return the macros of the device headers."""
    from importlib.resources import files

    folder = files("fusec").joinpath("templates/device")
    texts = (f.read_text(encoding="utf-8") for f in folder.iterdir() if f.name.endswith(".cuh"))
    return frozenset(name for text in texts for name in _MACRO.findall(text))
