"""CUDA source with its comments, keywords and numbers marked for a page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

_WORDS = """
    __constant__ __device__ __forceinline__ __global__ __grid_constant__ __host__
    __launch_bounds__ __restrict__ __shared__ __syncthreads __syncwarp alignas auto blockDim
    blockIdx bool break case char const constexpr continue default do double else enum extern
    false float for goto gridDim if inline int long namespace nullptr operator return short
    signed sizeof static struct switch template threadIdx true typename union unsigned using
    void volatile while
"""
_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|(?P<text>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|(?P<macro>^[ \t]*\#[^\n]*)"
    rf"|(?P<word>\b(?:{'|'.join(_WORDS.split())})\b)"
    r"|(?P<number>\b(?:0[xX][0-9a-fA-F]+|\d[\w.]*(?:(?<=[eE])[+-]\d+\w*)?))",
    re.DOTALL | re.MULTILINE,
)


def highlighted(text: str) -> Markup:
    """Return CUDA source as markup; everything in it is escaped."""
    from markupsafe import Markup, escape

    parts, end = list[Markup](), 0
    for match in _TOKEN.finditer(text):
        parts.append(escape(text[end : match.start()]))
        parts.append(Markup('<i class="{}">{}</i>').format(match.lastgroup, match.group()))
        end = match.end()
    parts.append(escape(text[end:]))
    return Markup("").join(parts)
