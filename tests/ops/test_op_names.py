"""Operations are declared once: outside `ops` and `parse`, few places decide by their names."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import pytest
from package_trees import FILES, PACKAGE, tree_of

from fusec.ops import TABLE

DECLARING = ("ops", "parse", "nvfuser", "models")
"""Where operations are declared, called by name in files, scripts and models, and drawn."""

DOCUMENTING = ("pages/stubs.py",)
"""What writes declarations of operations by their names."""

MOST_COMPARISONS = 17
MOST_ENTRIES = 14
"""What may be left; a change that needs more adds to the declaration of the operation instead."""

OTHER_WORDS = {
    "pages/files.py": {"_FILLERS"},  # words of English
    "explain/remedies.py": {"OF_ATTENTION", "OF_ALL"},  # rules of refusals
    "__init__.py": {"__all__", "name"},  # functions of sizes
    "call/fast.py": {"_CODES", "_FORMATS"},  # types
    "kernel/counting/costs.py": {
        "COSTS",
        "IN_C",
        "NOT_COUNTED",
    },  # device functions, functions of CUDA
    "kernel/counting/kinds.py": {"_OF_INTEGERS"},  # functions of C
    "kernel/ctext.py": {"TEMPLATE_NAMES", "C_NAMES"},  # words that C or the templates use
    "kernel/fold_rules.py": {"_EXTREMES"},
    "schedule/attention/kernel/names.py": {"FORWARD", "BACKWARD", "DECODE"},
    "schedule/matmul/kernel/names.py": {"RESERVED"},
    "hostir/sizes.py": {"_CALLS"},  # functions of sizes
    "emit/exchanges.py": {"kind"},  # exchanges
    "hostir/text.py": {"EXCHANGES"},
    "ir/dim.py": {"_FUNCTIONS"},
    "pages/schema.py": {"_SIZE", "_PARTS"},  # words of JSON Schema
    "pages/stubs.py": {"_TYPES", "_LISTS", "_OPERATORS", "_COMPARISONS", "_UNARY"},  # of Python
    "ir/dim_text.py": {"_INFIX"},
    "ir/dtype.py": {"_CATEGORY"},
    "options.py": {"SCHEDULERS"},
    "passes/complex_as_pairs.py": {"SUMS"},  # between ranks
    "reference/cost.py": {"FAMILIES"},
    "reference/errors/selections.py": {"_RULES"},
    "schedule/host/pushed_sums.py": {"reduction"},  # between ranks
    "reference/errors/spreads.py": {"k"},  # parts of a state
    "run/contents.py": {"_PLACING"},
    "run/exact_range.py": {"ROLES"},
    "run/transports/carriers.py": {"MOVING"},  # exchanges
    "run/transports/nccl.py": {"reduction", "_OF_BOOLS", "kind"},  # between ranks
    "run/transports/reduction.py": {"reduction", "_FUNCTIONS"},  # the same
    "schedule/rows/two_pass.py": {"_MADE"},  # names of values
    "schedule/scatter/family.py": {"FAMILIES"},
    "segment/refine.py": {"TIMES"},  # moves
    "shard/choose.py": {"IN_ORDER"},  # families
    "schedule/sort/family.py": {"FAMILIES"},
    "dumps/nvfuser.py": {"SCHEDULERS"},
    "emit/expressions.py": {"FUNCTIONS"},  # of sizes
    "emit/tvm_ffi.py": {"_KINDS"},  # types
    "exact/conflicts.py": {"KINDS"},  # families
    "dumps/numbering.py": {"INPUT_LETTERS"},
    "dumps/expressions.py": {"WELFORD"},  # results
}
"""Tables and variables whose words are no operations' names although they look like some."""


def is_name(node: ast.AST, known: frozenset[str]) -> bool:
    """Return whether an expression is an operation's name: `x.op.name`, or a variable of it."""
    if isinstance(node, ast.Name):
        return node.id in known
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "name"
        and (getattr(node.value, "attr", None) == "op" or getattr(node.value, "id", None) == "op")
    )


def variables(tree: ast.AST) -> frozenset[str]:
    """Return the variables of a function that hold an operation's name."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets = [(t, node.value) for t in node.targets]
            for target, value in targets:
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    pairs: Iterable[tuple[ast.AST, ast.AST]] = zip(
                        target.elts, value.elts, strict=False
                    )
                else:
                    pairs = [(target, value)]
                found |= {
                    t.id for t, v in pairs if isinstance(t, ast.Name) and is_name(v, frozenset())
                }
    return frozenset(found)


def literals(node: ast.AST) -> list[str]:
    """Return the operations that a literal, or a display of literals, names."""
    parts: list[ast.AST | None] = [node]
    if isinstance(node, ast.Dict):
        parts = [*node.keys]
    elif isinstance(node, (ast.Set, ast.Tuple, ast.List)):
        parts = [*node.elts]
    constants = (p.value for p in parts if isinstance(p, ast.Constant))
    return [c for c in constants if isinstance(c, str) and c in TABLE]


def comparisons(tree: ast.Module, other: set[str]) -> Iterator[int]:
    """Yield the line of every comparison with, and look-up by, an operation's name."""
    functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.Lambda))]
    seen: set[ast.AST] = set()
    for scope in (*functions, tree):
        known = variables(scope) if isinstance(scope, ast.FunctionDef) else frozenset[str]()
        for node in ast.walk(scope):
            if node in seen:
                continue
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                words = [s.id for s in sides if isinstance(s, ast.Name) and s.id not in other]
                named = bool(words) and any(literals(s) for s in sides)
                if any(is_name(s, known) for s in sides) or named:
                    seen.add(node)
                    yield node.lineno
            elif isinstance(node, ast.Match) and getattr(node.subject, "attr", None) not in other:
                for case in node.cases:
                    for word in ast.walk(case.pattern):
                        if isinstance(word, ast.MatchValue) and literals(word.value):
                            seen.add(node)
                            yield word.lineno
            elif (isinstance(node, ast.Subscript) and is_name(node.slice, known)) or (
                isinstance(node, ast.Call)
                and node.args
                and getattr(node.func, "attr", None) == "get"
                and is_name(node.args[0], known)
            ):
                seen.add(node)
                yield node.lineno


def entries(tree: ast.Module, other: set[str]) -> Iterator[int]:
    """Yield the line of every operation's name in a table of a module."""
    for statement in tree.body:
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
            continue
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        if not isinstance(target, ast.Name) or target.id in other:
            continue
        for node in ast.walk(statement.value):
            if isinstance(node, (ast.Dict, ast.Set, ast.Tuple, ast.List)):
                yield from (node.lineno for _ in literals(node))


def places(count: str) -> list[str]:
    """Return the places of the package that `count` (a function above) finds."""
    found: list[str] = []
    for file in FILES:
        place = file.relative_to(PACKAGE)
        if place.parts[0] not in DECLARING and str(place) not in DOCUMENTING:
            other = OTHER_WORDS.get(str(place), set())
            tree = tree_of(file)
            find = comparisons if count == "comparisons" else entries
            found += [f"{place}:{line}" for line in find(tree, other)]
    return found


@pytest.mark.parametrize(
    ("count", "most"), [("comparisons", MOST_COMPARISONS), ("entries", MOST_ENTRIES)]
)
def test_few_places_know_operations_by_name(count: str, most: int) -> None:
    found = places(count)
    assert len(found) <= most, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('if node.op.name == "cat":\n    pass', 1),
        ('if node.op.name in ("cat", "pad"):\n    pass', 1),
        ("def f(node):\n    name, x = node.op.name, 1\n    return name in KNOWN", 1),
        ('match node.op.name:\n    case "cat" | "pad":\n        pass', 2),
        ("rule = RULES[node.op.name]", 1),
        ("rule = RULES.get(node.op.name)", 1),
        ('if node.op.family == "scan" or node.op.cost.sfu:\n    pass', 0),
    ],
)
def test_the_counter_sees_them(text: str, expected: int) -> None:
    assert len(list(comparisons(ast.parse(text), set()))) == expected


def test_the_counter_sees_tables() -> None:
    tree = ast.parse('RULES = {"cat": 1, "pad": 2}\nSUMS = frozenset({"sum"})\nWORDS = ("other",)')
    assert len(list(entries(tree, set()))) == 3
