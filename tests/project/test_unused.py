"""What nothing in the package uses is not in it: it goes, or to the tests that alone use it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from package_trees import FILES, PACKAGE, tree_of
from paths import ROOT

TEMPLATES, TOOLS = PACKAGE / "templates", ROOT / "tools"
WORD = re.compile(r"\w+")

# Programs of users call these; so do files of nvFuser that `fusec` reads.
CALLED_BY_USERS = ("parse/dsl/", "parse/torch_standin", "nvfuser/")
# The tests, benchmarks and tools use these, too.
DEVELOPMENT = "dev/"
# A function under any other decorator is registered by it.
PLAIN = {
    "cache", "cached_property", "classmethod", "contextmanager", "dataclass", "lru_cache",
    "overload", "property", "staticmethod", "wraps",
}  # fmt: skip
CALLED_BY_CLICK = {"resolve_command", "format_epilog"}
CALLED_BY_JINJA = {"load_bytecode", "dump_bytecode"}
CALLED_BY_NOTEBOOKS = {"_repr_html_"}
CALLED_BY_OTHERS = CALLED_BY_CLICK | CALLED_BY_JINJA | CALLED_BY_NOTEBOOKS

# Device functions that no kernel calls today and the next ones do: clusters, multicast, stores by
# the bulk copy unit, matrix stores, hints to caches.
NEXT_KERNELS = {
    "elect_one", "fence_proxy_async_global", "l2_evict_last", "ldmatrix_x2",
    "ldmatrix_x2_trans",
    "stmatrix_x2", "stmatrix_x4", "stmatrix_x4_trans",
    "tensor_load_2d_multicast",
    "tensor_reduce_add_2d", "tensor_reduce_add_3d", "tensor_store_2d", "tensor_store_3d",
    "wait_group_read",
}  # fmt: skip

# It finds such calls in the text of kernels, and writes none.
READS_CALLS = PACKAGE / "kernel" / "device.py"


def used(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that is read, with its line; a word in a string counts where it is a name."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Name():
                if isinstance(node.ctx, ast.Load):
                    yield node.id, node.lineno
                continue  # has no nodes of its own but its context
            case ast.Constant():
                if isinstance(node.value, str) and re.fullmatch(r"[\w.]+", node.value):
                    yield from ((word, node.lineno) for word in WORD.findall(node.value))
                continue
            case ast.Attribute():
                yield node.attr, node.lineno
                waiting.append(node.value)
                continue
            case ast.keyword(arg=str(name)):
                yield name, node.lineno
            case ast.MatchClass(kwd_attrs=names):
                yield from ((name, node.lineno) for name in names)
            case _:
                pass
        waiting += ast.iter_child_nodes(node)


def defined(tree: ast.AST, top: bool = True) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the functions, methods, classes and constants of a file, each with its statement."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if all(decorator(d) in PLAIN for d in node.decorator_list):
                yield node.name, node
            yield from defined(node, top=False)
        elif isinstance(node, ast.Assign) and top:
            yield from ((t.id, node) for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from defined(node, top)


def decorator(node: ast.expr) -> str:
    """Return the last word of a decorator's name."""
    function = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(function).rpartition(".")[2]


def first_line(statement: ast.stmt) -> int:
    """Return the line where a statement begins, that of its first decorator where it has some."""
    return min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))])


def words(folder: Path, *endings: str) -> Counter[str]:
    """Return the words of some text files."""
    found: Counter[str] = Counter()
    for path in folder.rglob("*"):
        if path.suffix in endings:
            found.update(WORD.findall(path.read_text(encoding="utf-8")))
    return found


def test_everything_defined_is_used() -> None:
    uses = words(PACKAGE, ".j2", ".cuh")
    lines: dict[tuple[Path, str], list[int]] = {}
    for path in FILES:
        for name, line in used(tree_of(path)):
            uses[name] += 1
            lines.setdefault((path, name), []).append(line)
    uses.update(name for path in TOOLS.glob("*.py") for name, _ in used(tree_of(path)))
    unused: list[str] = []
    for path in FILES:
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith(CALLED_BY_USERS):
            continue
        for name, statement in defined(tree_of(path)):
            if name in CALLED_BY_OTHERS or re.fullmatch(r"__\w+__", name):
                continue
            own = range(first_line(statement), (statement.end_lineno or 0) + 1)
            elsewhere = uses[name] - sum(line in own for line in lines.get((path, name), ()))
            if elsewhere <= 0:
                unused.append(f"{place}:{statement.lineno}: {name}")
    assert unused == []


DEVICE_NAME = re.compile(
    r"^(?:__device__|__host__|inline|constexpr)[^;{(=]*?\b(\w+)(?:\(| =)"
    r"|^(?:struct|using)\s+(?:\w+\s+)*?(\w+)",
    re.MULTILINE,
)


def test_device_functions_are_used_or_awaited() -> None:
    headers = [p.read_text(encoding="utf-8") for p in sorted(TEMPLATES.glob("device/*.cuh"))]
    code = [re.sub(r"//.*", "", text) for text in headers]
    uses = words(PACKAGE, ".j2", ".py", ".cu") + Counter(w for t in code for w in WORD.findall(t))
    uses.subtract(WORD.findall(READS_CALLS.read_text(encoding="utf-8")))
    names = {"".join(found) for text in code for found in DEVICE_NAME.findall(text)}
    assert {n for n in names if uses[n] == 1} == NEXT_KERNELS
