"""The tokens of op lines, types and sizes, with their positions in the source."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from fusec.codes.document import UNEXPECTED_TOKEN
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.parse.source import Source

_TOKEN = re.compile(
    r"(?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)"
    r"|(?P<mark>\.\.\.|\.(?=[A-Za-z_])|\*\*|//|<<|>>|[<>=!]=|[-+*/%(),=\[\]:@<>&|^~!?])"
)
_LOOKALIKES = {
    **dict.fromkeys("×·∗⋅", "*"), **dict.fromkeys("–—−‐‑", "-"), "÷": "/", "∕": "/",
    "≤": "<=", "≥": ">=", "≠": "!=", "¬": "~", "²": "** 2", "³": "** 3", "√": "sqrt(x)",
    "π": "3.141592653589793", "∞": "inf", "∧": "&", "∨": "|", "⊕": "^",
    **dict.fromkeys("“”„", '"'), **dict.fromkeys("‘’", "'"), "…": "...",
}  # fmt: skip
"""Characters of word processors and formulas, and their replacement in op lines."""
_POWERS = {"²": 2, "³": 3}
_BLANK = re.compile(r"(?:\s|\\\n)*")
_STRING = re.compile(r"""(['"])(?P<text>[^'"\\\n]*)\1""")
_FORMATTED = re.compile(r"""[fF][rR]?(['"])[^'"\n]*\1""")
_EXPONENT = re.compile(r"(?P<number>[0-9.]+)[eE](?P<sign>-{2,}|[–—−‐‑])(?P<digits>[0-9]+)")
"""A number whose exponent has a sign other than a hyphen, or two."""
_NAME_REST = re.compile(r"\w+")
_QUOTED_NUMBER = re.compile(r"""(['"])([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\1""")


@dataclass(frozen=True)
class Token:
    """A token: its kind (number, name, mark, string or end), text and position."""

    kind: str
    text: str
    start: int
    end: int


def tokens_of(source: Source, start: int, end: int) -> Iterator[Token]:
    """Yield the tokens of a source range, the last one of kind `end`."""
    position, text = start, source.text
    while True:
        blank = _BLANK.match(text, position, end)
        position = blank.end() if blank else position
        if position >= end:
            # The end is reported just after the last token, not on a later blank line.
            last = len(text[start:end].rstrip()) + start
            yield Token("end", "", last, last)
            return
        formatted = _FORMATTED.match(text, position, end)
        if formatted is not None:
            raise FusecError(
                "op lines have no f-strings",
                span=source.span(position, formatted.end()),
                help="write the text that it makes, without the `f`",
                code=UNEXPECTED_TOKEN,
            )
        found = _TOKEN.match(text, position, end)
        string = _STRING.match(text, position, end) if found is None else None
        if string is not None and not _QUOTED_NUMBER.match(text, position, end):
            yield Token("string", string["text"], position, string.end())
            position = string.end()
            continue
        if found is None:
            raise FusecError(
                f"unexpected `{text[position]}`",
                span=source.span(position),
                help=_quoted_number(text, position, end) or _foreign(text, position),
                code=UNEXPECTED_TOKEN,
            )
        misspelt = _EXPONENT.match(text, position, end)
        if misspelt is not None:
            hyphens = misspelt["sign"].strip("-") == ""
            number = f"write `{misspelt['number']}e-{misspelt['digits']}`"
            raise FusecError(
                f"`{misspelt[0]}` is not a number",
                span=source.span(position, misspelt.end()),
                help=number if hyphens else f"its sign is not a hyphen: {number}",
                code=UNEXPECTED_TOKEN,
            )
        rest = _NAME_REST.match(text, found.end(), end)
        if rest is None and found.lastgroup == "number":
            _check_digits(source, position, found[0])
        if rest is not None and found.lastgroup in ("number", "name"):
            word = found[0] + rest[0]
            plain = word.replace("_", "")
            help = "names have ASCII letters, digits and `_`, and do not begin with a digit"
            if rest[0] in _POWERS:
                help = f"write `{found[0]} ** {_POWERS[rest[0]]}`"
            if found.lastgroup == "number" and rest[0].isidentifier():
                product = f"a product is `{found[0]} * {rest[0]}`"
                number = _without_suffix(found[0], rest[0])
                if rest[0] in ("j", "J"):
                    number = f"c64(0, {found[0]})"
                if number == found[0] and rest[0] in ("f", "F"):
                    help = f"write `{number}`"  # a C float, never a product
                else:
                    help = f"write `{number}`; {product}" if number else f"{help}; {product}"
            raise FusecError(
                f"`{word}` is not a name",
                span=source.span(position, rest.end()),
                help=f"write `{plain}`" if plain.isdecimal() and plain.isascii() else help,
                code=UNEXPECTED_TOKEN,
            )
        yield Token(found.lastgroup or "", found[0], position, found.end())
        position = found.end()


def _check_digits(source: Source, position: int, number: str) -> None:
    """Raise FusecError for an integer that begins with 0: the 096 of `4,096`."""
    if number.isdigit() and number[0] == "0" and len(number) > 1:
        before = re.search(r"([1-9]\d{0,2}),\Z", source.text[:position])
        plain = f"numbers have no separators: write `{before[1]}{number}`" if before else None
        raise FusecError(
            f"an integer does not begin with 0: `{number}`",
            span=source.span(position, position + len(number)),
            help=plain or f"write `{number.lstrip('0') or '0'}`",
            code=UNEXPECTED_TOKEN,
        )


def _without_suffix(number: str, suffix: str) -> str | None:
    """Return the value of a number with a suffix: `1.0f` of C, or `4k` of sizes."""
    if re.fullmatch("[uU]?[lL]{0,2}|[lL]{1,2}[uU]", suffix) and number.isdecimal():
        return number
    if suffix in ("f", "F"):
        return f"{number}.0" if number.isdecimal() else number
    power = "kMG".find(suffix.replace("K", "k")) + 1
    value = number_of(number) * 1024**power
    whole = power and value < 2**53 and value == int(value)
    return str(int(value)) if whole else None


def _quoted_number(text: str, position: int, end: int) -> str | None:
    found = _QUOTED_NUMBER.match(text, position, end)
    return f"a number is written without quotes: write `{found[2]}`" if found else None


def _foreign(text: str, position: int) -> str | None:
    character = text[position]
    if character in "'\"":
        return "close the string, or remove the quote: dtypes and names are not quoted"
    if character == "\\":
        return "remove the `\\`: a line goes on in the next one, indented deeper"
    if character == ";":
        return "sizes and arguments are separated by commas"
    if character == "{":
        return "calls have parentheses, as in `rsqrt(x)`, and lists brackets"
    if character in "$%":
        return f"names have no `{character}`: remove it"
    if character == "#":
        return "a comment begins with a blank and `#`"
    if character in _LOOKALIKES:
        return f"write `{_LOOKALIKES[character]}`"
    plain = unicodedata.normalize("NFKC", character)
    if plain != character and plain.isascii() and plain.isprintable():
        return f"it is a {unicodedata.name(character, 'sign').lower()}: write `{plain}`"
    return None


def number_of(text: str) -> int | float:
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    # Digits beyond any integer type: the reader rejects the size, int() would reject the length.
    if text.isdigit():
        return int(text) if len(text) <= 40 else 10**40
    return float(text)
