"""Names of values and dims: identifiers that are not words of C++ and CUDA."""

from __future__ import annotations

import re

from fusec.diagnostics import FusecError, Span

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
blockIdx blockDim gridDim warpSize fusec
"""
KEYWORDS = frozenset(_WORDS.split())


def check_name(name: str, what: str, span: Span | None = None) -> None:
    """Raise FusecError unless `name` may name a value or dim in generated code."""
    if not IDENTIFIER.match(name):
        raise FusecError(
            f"{what} name `{name}` is not an identifier",
            span=span,
            help="use letters, digits and underscores, not a digit first",
        )
    if name in KEYWORDS:
        raise FusecError(
            f"{what} name `{name}` is a word of CUDA C++", span=span, help=f"try `{name}_`"
        )
    if name.startswith("__"):
        raise FusecError(f"{what} name `{name}` is reserved: it begins with `__`", span=span)
