"""User-facing text uses the field's terms: CUDA's, PyTorch's, Triton's, CUTLASS's, LLVM's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import user_text
from user_text import python_texts, user_texts

REJECTED = {
    r"pric(?:e|es|ed|ing)": "cost model, predicted time",
    r"(?<!`)\bfloor\b": "lower bound, compulsory traffic",
    r"must move": "compulsory traffic",
    r"fewest bytes": "compulsory traffic, lower bound on traffic",
    r"(?:is|are|was|were|why it is) cut\b|cut (?:so|as|into)": "partitioned",
    r"matrix products?|products? of matrices": "GEMM, matmul",
    r"(?:joined|split|thin|large|persistent|skinny|plain) products?": "(dual, split-K) GEMM",
    r"half types?|types? of halves|(?:in|leave|are|to) halves": "16-bit floats (fp16, bf16)",
    r"few bits": "low-precision, weight-only quantized",
    r"behind the point": "mantissa bits",
    r"draws?|drawn|drew": "sample, random number, randomly generated",
    r"exchang(?:e|es|ed|ing)": "collective, communication, send, swap",
    r"pass(?:ed)? around": "ring",
    r"places? of (?:a |the )?ranks?|order of place": "rank index",
    r"helper in C|(?<!the )C helper": "C launch helper",
    r"built for nothing|no build covers": "not compiled yet, not compiled for these shapes",
    r"covers any": "dynamic: B; specialized: H = 4096",
    r"go in and come out": "accepts and returns",
    r"memory of the host": "on the CPU",
    r"(?<!there )(?:is|are) no (?!longer\b|more\b|such\b|larger\b|smaller\b)": "is not a",
    r"(?:this|its own|a) family's": "the scheduler does not support it",
    r"instead of one": "expected one, found N",
    r"read again after its": "no tensor is reused after the reduction",
    r"along memory": "contiguous",
    r"on an SM at a time": "blocks/SM",
    r"live at once": "peak memory",
    r"accesses are narrow": "loads and stores are not vectorized",
    r"not decided|undecided": "inconclusive",
    r"would (?:not )?show|would have shown": "detection limit",
    r"64th of": "one lost partial sum in N",
    r"with a share": "with probability p",
    r"beside": "next to, in addition to, compared with, overlapping",
    r"behind": "after, following",
    r"apart": "separate, distinct, except",
    r"do without": "disable",
    r"left out|leav(?:e|es|ing)(?: \w+){0,3} out": "disabled, skipped, omitted",
    r"asked for|asks? for": "requested, requires",
    r"values that go\b": "valid values",
    r"mend(?:s|ed)?": "fix",
    r"anew": "again",
    r"dear(?:er)?": "expensive",
    r"thin|few rows": "tall-skinny, small M",
    r"whoever|whatever": "(name it)",
    r"by (?:itself|themselves)": "alone, separately",
    r"as (?:it|they) (?:stands?|lies?)|where (?:it|they) (?:lies?|stands?)": "unchanged, in place",
    r"(?:of|by) which": "(a clause of its own)",
    r"takes? turns|in turns": "serially in ticket order, round-robin, ping-pong",
    r"CUDA text|text of (?:a|the|every|each) kernels?|kernels?' text|kernel's text": "CUDA source",
    r"blanks": "spaces",
    r"class numbers": "class indices",
    r"NaN wins": "propagates NaN",
    r"elements? that meets?": "colliding indices",
    r"helper that is built in C": "C launch helper",
    r"a jump|jumps": "discontinuity",
    r"nobody": "no reader, no rank, ...",
    r"side by side": "adjacent, non-overlapping, in parallel",
    r"turns? (?:a dim )?around": "reverses",
    r"know one another": "authenticates",
    r"of equal entries": "duplicates",
    r"told": "reported",
    r"stands? (?!for\b|alone\b)|in the place of": "is, is written; instead of",
    r"whose (?:they|it)\b|some of whose": "(a clause of its own)",
    r"lies there": "is in this range",
    r"order of (?:their )?places": "rank index, order of indices",
    r"bring(?:s|ing)?|brought": "load, copy",
    r"slower apart|faster apart": "faster as separate kernels",
    r"the host(?: to)? issues? it anew": "re-issues",
}
"""Phrases that a CUDA or compiler engineer would stumble over, with the standard term for each."""

_PATTERNS = {re.compile(rf"\b(?:{phrase})\b", re.I): term for phrase, term in REJECTED.items()}


def rejected(text: str) -> list[str]:
    """Return each private phrase of a text with the standard term."""
    return [f"{m[0]!r}: {term}" for p, term in _PATTERNS.items() for m in p.finditer(text)]


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    return list(user_texts())


def test_users_read_standard_terms(texts: list[tuple[str, str]]) -> None:
    """Each phrase is looked for once in everything, and placed where it is found."""
    everything = "\n".join(text.replace("\n", " ") for _, text in texts)
    found = [
        f"{place}: {r}"
        for place, text in (texts if rejected(everything) else ())
        for r in rejected(text)
    ]
    assert not found, "\n".join(found)


def test_docstrings_and_comments_have_standard_terms() -> None:
    """Also what only those read who change fusec."""
    texts = list(python_texts())
    everything = "\n".join(text for _, text in texts)
    found = [
        f"{place}: {r}"
        for place, text in (texts if rejected(everything) else ())
        for r in rejected(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("chosen by price", "cost model"),
        ("0 matrix products, not five", "GEMM"),
        ("`x` is no view of an input", "is not a"),
        ("the reduced axes run along memory", "contiguous"),
    ],
)
def test_private_phrases_are_found(text: str, term: str) -> None:
    (found,) = rejected(text)
    assert term in found


def test_docstrings_and_comments_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fusec").mkdir()
    head = '"""Of a module."""\nX = "# text"\n"""Of a constant."""\n'
    source = f'{head}def f():  # of a line\n    """Of f."""\n'
    (tmp_path / "fusec" / "a.py").write_text(source)
    monkeypatch.setattr(user_text, "ROOT", tmp_path)
    found = {place.removeprefix("fusec/a.py:"): text for place, text in python_texts()}
    expected = {"1": "Of a module.", "3": "Of a constant.", "5": "Of f.", "4": "# of a line"}
    assert found == expected


def test_all_kinds_of_text_are_read(texts: list[tuple[str, str]]) -> None:
    places = [place for place, _ in texts]
    kinds = ("README.md:", "CHANGELOG.md:", "docs/files.md:", "docs/decisions/", "fusec run --help")
    for kind in (*kinds, "fusec ops exp", "fusec.schema.json", "fusec/call/given.py:"):
        assert any(p.startswith(kind) for p in places), kind
