"""Imports go one way, without circles."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from package_trees import FILES, PACKAGE, tree_of

# Each may import what stands before it; names in one line stand side by side.
LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset(line.split())
    for line in (
        "dataclasses properties",
        "escape codes spelling",
        "diagnostics options generator version processors activity",
        "foreign",
        "trust",
        "user_files",
        "ir",
        "ops executor stages",
        "reference",
        "shard",
        "parse index target tuned passes",
        "segment nvfuser",
        "dumps exact",
        "kernel",
        "schedule",
        "codegen",
        "hostir",
        "run",
        "plan_cache",
        "call",
        "models",
        "left_out",
        "files keywords lowering",
        "driver",
        "rank eager",
        "variants",
        "emit tune",
        "explain pages",
        "bench",
        "commands",
        "compiling",
        "recorded",
        "api",
        "cli",
        "__main__ __init__",
    )
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def layer_of(path: Path) -> str:
    """Return the part of the package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imports(path: Path) -> tuple[tuple[str, int], ...]:
    """Return (module, line) of every import in a file, also inside functions."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in statements(tree_of(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            if node.module == "fusec":
                for alias in node.names:
                    yield f"fusec.{alias.name}", node.lineno
            else:
                yield node.module, node.lineno


CYCLES: tuple[set[str], ...] = (
    # What a fusion says of itself, whether it equals another say, those find that read it.
    {f"fusec.ir.{name}" for name in ("graph", "structure", "effects", "expression")},
)
"""Modules that may import one another, inside functions."""

TYPED_CYCLES: Mapping[str, str] = {
    "the cursor fails with what is said of ends, which are at a cursor":
        "fusec.parse.syntax.cursor fusec.parse.syntax.endings",
    "a source keeps the body that it was rendered from, for its digest and counts":
        "fusec.codegen.render fusec.codegen.source",
    "a program binds itself, and what is bound refers to it":
        "fusec.run.bound fusec.run.execute",
    "the emitter calls what draws, which writes statements by it":
        "fusec.kernel.lowering.draws fusec.kernel.lowering.emit",
    "arithmetic of dims is divided by operation, and its results are dims":
        "fusec.ir.dim fusec.ir.dim_text fusec.ir.quotients",
    "parts of the builder are functions of it":
        "fusec.ops.builder.build fusec.ops.builder.size_operands fusec.ops.reduction.zero_dim",
    "a model is written into a folder, whose files refer to one another by name":
        "fusec.models.folder fusec.models.fusion_text fusec.models.parts",
    "a program captures graphs and evaluates on the host, each of that program":
        "fusec.call.graph fusec.call.host fusec.call.program",
    "a product has a producer and totals, each of which is legal for some products":
        "fusec.schedule.matmul.operands.computed fusec.schedule.matmul.problem "
        "fusec.schedule.matmul.totals",
    "an operation, its roles and access are declared in terms of the graph that has it":
        "fusec.ir.access fusec.ir.effects fusec.ir.expression fusec.ir.graph fusec.ir.op "
        "fusec.ir.roles fusec.ir.structure",
    "parts of nvFuser's definition are functions of it":
        "fusec.nvfuser.arguments fusec.nvfuser.caches fusec.nvfuser.definition "
        "fusec.nvfuser.embedding fusec.nvfuser.multidevice fusec.nvfuser.operations "
        "fusec.nvfuser.profiler fusec.nvfuser.repro fusec.nvfuser.shardings",
    "a definition makes tensors, whose methods are its calls":
        "fusec.parse.dsl.boundaries fusec.parse.dsl.calls fusec.parse.dsl.definition "
        "fusec.parse.dsl.divided fusec.parse.dsl.execute fusec.parse.dsl.executed "
        "fusec.parse.dsl.foreign fusec.parse.dsl.handles fusec.parse.dsl.indexing "
        "fusec.parse.dsl.operations fusec.parse.dsl.parts fusec.parse.dsl.pytorch_calls "
        "fusec.parse.dsl.running fusec.parse.dsl.scheduled fusec.parse.dsl.session "
        "fusec.parse.dsl.steps fusec.parse.dsl.suggested fusec.parse.dsl.taken",
}  # fmt: skip
"""Modules that name one another's types, by the reason; what runs is acyclic."""


def module_of(path: Path) -> str:
    """Return the name of a file's module."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a file, and what else is no expression: a tenth of its nodes."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += (n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.expr))


def run_nodes(tree: ast.AST, *, expressions: bool) -> Iterator[ast.AST]:
    """Yield the nodes of a file, but those for type checkers alone."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                waiting += node.orelse
            case ast.Name() | ast.Constant() | ast.expr_context() | ast.operator():
                pass  # has no nodes of its own
            case _ if expressions:
                waiting += ast.iter_child_nodes(node)
            case _:
                waiting += (n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.expr))


def loads(path: Path, modules: Collection[str]) -> Iterator[str]:
    """Yield the modules that a file imports when it runs, also inside functions."""
    names_modules = '"fusec.' in path.read_text(encoding="utf-8")
    for node in run_nodes(tree_of(path), expressions=names_modules):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules else str(node.module) for name in named)
        elif isinstance(node, ast.Constant) and str(node.value).startswith("fusec."):
            yield str(node.value)  # named for importlib


def names(path: Path, modules: Collection[str]) -> Iterator[str]:
    """Yield the modules that a file imports, also those for type checkers alone."""
    for node in statements(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules else str(node.module) for name in named)


Imported = Callable[[Path, Collection[str]], Iterator[str]]


def circles_of(files: Iterable[Path], imported: Imported = loads) -> list[set[str]]:
    """Return the sets of modules that import one another."""
    import networkx

    modules = {module_of(path): path for path in files}
    graph: Any = networkx.DiGraph()
    for name, path in modules.items():
        found = imported(path, modules)
        graph.add_edges_from((name, m) for m in found if m in modules and m != name)
    return [c for c in networkx.strongly_connected_components(graph) if len(c) > 1]


def test_no_modules_import_one_another() -> None:
    assert [c for c in circles_of(FILES) if not any(c <= known for known in CYCLES)] == []


def test_modules_that_name_one_another_are_argued() -> None:
    argued = {frozenset(each.split()) for each in TYPED_CYCLES.values()}
    found = {frozenset(circle) for circle in circles_of(FILES, names)}
    assert {c for c in found if not any(c <= known for known in argued)} == set()
    assert {c for c in argued if not any(known <= c for known in found)} == set()


def test_every_part_has_a_layer() -> None:
    assert {layer_of(p) for p in FILES} - set(LEVEL) == set()


def upward(path: Path) -> list[str]:
    """Return the imports of a file that are not of a lower layer."""
    own, found = layer_of(path), list[str]()
    for module, line in imports(path):
        other = (*module.split("."), "")[1] if module.startswith("fusec") else ""
        if other not in ("", own, "__version__") and LEVEL[other] >= LEVEL[own]:
            found.append(f"{path.relative_to(PACKAGE)}:{line}: {own} imports {module}")
    return found


def test_imports_go_one_way() -> None:
    assert [line for path in FILES for line in upward(path)] == []


def test_an_import_upwards_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    (tmp_path / "ir").mkdir()
    right, wrong = (tmp_path / "ir" / name for name in ("right.py", "wrong.py"))
    right.write_text("from fusec.ir.dim import Dim\nfrom fusec.diagnostics import FusecError\n")
    assert upward(right) == []
    wrong.write_text("\nfrom fusec.schedule.plan import Kernel\n")
    assert upward(wrong) == ["ir/wrong.py:2: ir imports fusec.schedule.plan"]


def test_the_ir_knows_no_operation() -> None:
    for path in (PACKAGE / "ir").rglob("*.py"):
        assert not [m for m, _ in imports(path) if m.startswith("fusec.ops")], path


def test_the_segmenter_knows_no_scheduler() -> None:
    for path in (PACKAGE / "segment").rglob("*.py"):
        assert not [m for m, _ in imports(path) if m.startswith("fusec.schedule")], path


LOWERING = {
    f"fusec.kernel.lowering.{name}" for name in ("emit", "stores", "phases", "accumulators")
}
"""What makes statements of a plan's values."""


def lowering_in(folder: Path) -> list[str]:
    """Return the imports of what makes statements, in a folder."""
    files = sorted(folder.rglob("*.py"))
    return [f"{p.name}: {m}" for p in files for m, _ in imports(p) if m in LOWERING]


def test_views_make_no_statements() -> None:
    assert lowering_in(PACKAGE / "codegen") == []
    assert lowering_in(PACKAGE / "schedule") != []


def test_networkx_is_known_to_segmentation_alone() -> None:
    for path in FILES:
        if any(m.split(".")[0] == "networkx" for m, _ in imports(path)):
            assert layer_of(path) in ("segment", "exact"), path


def test_exact_bounds_load_where_they_are_asked_for() -> None:
    asking = {
        layer_of(path)
        for path in FILES
        if any(m.startswith("fusec.exact") for m, _ in imports(path)) and layer_of(path) != "exact"
    }
    assert asking == {"explain"}
