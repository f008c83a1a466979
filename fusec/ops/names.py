"""Names of values and dims: identifiers that are not reserved in C++ and CUDA."""

from __future__ import annotations

import re

from fusec.codes.names import INVALID_NAME
from fusec.diagnostics import FusecError, Span
from fusec.ir.dtype import DTYPES

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)

_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t
char16_t char32_t class compl concept const consteval constexpr constinit const_cast
continue co_await co_return co_yield decltype default delete do double dynamic_cast else
enum explicit export extern false float for friend goto if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public
register reinterpret_cast requires return short signed sizeof static static_assert
static_cast struct switch template this thread_local throw true try typedef typeid
typename union unsigned using virtual void volatile wchar_t while xor xor_eq threadIdx
blockIdx blockDim gridDim warpSize fusec defined
"""
KEYWORDS = frozenset(_WORDS.split())
_OF_COMPILERS = re.compile(r"__|_[A-Z]")
"""Prefixes of names that C++ reserves for compilers: `_Pragma`, `_Bool`, `__has_include`."""
RESERVED = frozenset(
    {"true", "false", "none", "null", "inf", "nan", "True", "False", "None", *DTYPES}
)
"""Reserved words of the fusion language."""
MOST_LETTERS = 100
"""Of names that file names are derived from; a file name may contain them twice."""
MOST_LETTERS_INSIDE = 1000
"""Of all others: YAML does not accept keys of more than 1024."""
UNUSED = "_"
"""The name of an unused result in a file or a script."""
_OF_FILES = frozenset({"fusion", "phase"})


def is_name(name: str) -> bool:
    """Return whether a name is valid for a value or dim in generated code."""
    taken = name in RESERVED or name in KEYWORDS or _OF_COMPILERS.match(name)
    return not taken and IDENTIFIER.match(name) is not None


def label_of(name: str, position: int) -> str:
    """Return the label of a result: its name, or its position if it has none."""
    return f"unused{position}" if name == UNUSED else name


def _help_of(name: str, span: Span | None) -> str:
    """Return a replacement for an invalid name."""
    before = None if span is None else re.search(r"(\d+),\Z", span.text[: span.column - 1])
    if before is not None and re.fullmatch(r"\d{3}", name):
        return f"numbers have no separators: write `{before[1]}{name}`"
    left, equals, right = name.partition("=")
    if equals and left.strip().isidentifier() and right:
        return f"a value is written after a colon: `{left.strip()}: {right.strip()}`"
    rule = "use letters, digits and underscores; do not begin with a digit"
    made = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    usable = IDENTIFIER.match(made) and made not in RESERVED and made not in KEYWORDS
    return f"{rule}: write `{made}`" if usable else rule


def check_name(name: str, what: str, span: Span | None = None) -> None:
    """Raise FusecError unless a fusion, dim, value, segment or phase may have this name."""
    if name in RESERVED:
        raise FusecError(
            f"{what} name `{name}` is a keyword of fusion files",
            span=span,
            help=f"try `{name}_`",
            code=INVALID_NAME,
        )
    if not IDENTIFIER.match(name):
        raise FusecError(
            f"{what} name `{name}` is not an identifier",
            span=span,
            help=_help_of(name, span),
            code=INVALID_NAME,
        )
    if name in KEYWORDS:
        raise FusecError(
            f"{what} name `{name}` is a keyword of CUDA C++",
            span=span,
            help=f"try `{name}_`",
            code=INVALID_NAME,
        )
    if (found := _OF_COMPILERS.match(name)) is not None:
        raise FusecError(
            f"{what} name `{name}` is reserved for compilers: it begins with `{found[0]}`",
            span=span,
            help=f"try `{name.lstrip('_') or 'value'}_`",
            code=INVALID_NAME,
        )
    most = MOST_LETTERS if what in _OF_FILES else MOST_LETTERS_INSIDE
    if len(name) > most:
        raise FusecError(
            f"a {what} name of {len(name)} characters is too long",
            span=span,
            help=f"at most {most}",
            code=INVALID_NAME,
        )


def fresh_name(taken: set[str], base: str) -> str:
    """Return the first free of `base`, `base_2`, `base_3`, ..., and mark it as taken."""
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}_{count}"
    taken.add(name)
    return name
