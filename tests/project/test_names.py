"""Identifiers and file names use the field's terms, as `test_words.py` has it for text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

REJECTED = {
    "anew": "again, re-",
    "apart": "distinct, separate, distance",
    "at_once": "unrolled, batch",
    "attend": "mainloop",
    "behind": "after, consumers",
    "beside": "ctas_per_sm, sibling, other",
    "bring": "load",
    "dear": "expensive",
    "drawn": "random, sampled",
    "emit_ends": "emit_edges",
    "fewest_bytes": "compulsory_bytes",
    "give_registers": "dealloc_registers",
    "given_after": "precomputed_after",
    "half_one_plus": "tanh_to_sigmoid",
    "hold_ends": "load_edges",
    "keys_seen": "key_range",
    "late_joins": "sink_joins",
    "late_waits": "sink_waits",
    "likeliest": "default_parameters",
    "located": "resolve_address",
    "misplaced": "unaligned",
    "moves_registers": "uses_setmaxnreg",
    "nobody": "none, no_rank",
    "offer_tile": "push_tile",
    "pass_turn": "semaphore_release",
    "pair_columns": "cluster_n",
    "pair_rows": "cluster_m",
    "patience": "timeout, spin_guard",
    "price": "cost, estimate",
    "priced": "estimated",
    "prices": "costs",
    "read_once": "streamed",
    "seen_keys": "key_range",
    "swapped": "swap_ab",
    "take_last_turn": "semaphore_wait",
    "take_registers": "alloc_registers",
    "takes_turns": "is_serial",
    "thin": "tall_skinny",
    "tighten": "prune",
    "told": "reported, message",
    "trouble": "why_illegal, check_",
    "turned": "transposed",
    "two_kernel": "two_pass",
    "whatever": "(name it)",
    "whoever": "(name it)",
}
"""Words that a CUDA or compiler engineer would stumble over in a name, with the standard term."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_C_NAME = re.compile(r"\b[A-Za-z_]\w*\b")
_C_TEXT = re.compile(r"//[^\n]*|/\*.*?\*/|\{#.*?#\}|\"[^\"\n]*\"", re.DOTALL)


def rejected(name: str) -> str | None:
    """Return the term to use instead of a rejected word of a name, or None."""
    words = f"_{'_'.join(_WORD.findall(name)).lower()}_"
    return next((term for word, term in REJECTED.items() if f"_{word}_" in words), None)


def declared(tree: ast.AST, *, local: bool = False) -> Iterator[str]:
    """Yield the names that a module defines, local variables excepted."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            yield from declared(node, local=not isinstance(node, ast.ClassDef))
        else:
            if isinstance(node, ast.arg):
                yield node.arg
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield node.attr
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and not local:
                yield node.id
            yield from declared(node, local=local)


def names_of(path: Path) -> Iterator[str]:
    """Yield the name of a file and the names in it."""
    yield path.name.partition(".")[0]
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from declared(ast.parse(text))
    else:
        yield from _C_NAME.findall(_C_TEXT.sub(" ", text))


def found() -> Iterator[tuple[str, str, str]]:
    """Yield (file, name, term) of the rejected names of the package and the tools."""
    files = [*(ROOT / "fusec").rglob("*.py"), *(ROOT / "tools").rglob("*.py")]
    files += [p for p in (ROOT / "fusec" / "templates").rglob("*") if p.suffix in (".j2", ".cuh")]
    for path in sorted(files):
        for name in dict.fromkeys(names_of(path)):
            if (term := rejected(name)) is not None:
                yield str(path.relative_to(ROOT)), name, term


def test_names_are_standard_terms() -> None:
    new = [f"{file}: `{name}`: {term}" for file, name, term in found()]
    assert not new, "\n".join(new)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def trouble(price): pass", ["trouble", "price"]),
        ("class A:\n  is_dear: bool\n  def f(self): self.told = 1", ["is_dear", "told"]),
        ("DRAWN = 1\ndef f():\n  drawn = 2", ["DRAWN"]),
        ("def f(): return [told for told in ()]", []),
        ("apartment = priceless = 1", []),
    ],
)
def test_private_names_are_found(source: str, names: list[str]) -> None:
    assert [n for n in declared(ast.parse(source)) if rejected(n)] == names


def test_names_of_files_and_templates_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows_beside.cu.j2"
    path.write_text('// told\nconst int kDear = 1; {# apart #}\nfusec::put_turned("price");\n')
    assert [n for n in names_of(path) if rejected(n)] == ["rows_beside", "kDear", "put_turned"]
