"""No fact about a kernel is read from its text: what the package searches in strings is listed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from jinja2 import Environment, nodes
from package_trees import FILES, PACKAGE, tree_of

STAGES = (
    "bench", "codegen", "driver", "emit", "explain", "hostir", "kernel", "lowering", "run",
    "schedule", "tune/",
)  # fmt: skip
"""Where a kernel's text, or a part of it, is at hand."""

DOTS = "names of sizes: a dot is in those that are fusec's own, such as strides"
MESSAGE = "keys of a message between processes"
TOOL = "what a compiler or the system prints about itself"

LEFT: Mapping[str, str] = {
    # Text of users.
    "parse/": "files and scripts of users",
    "nvfuser/": "scripts of users, and versions of nvFuser",
    "ir/": "words of files, and how a text is quoted in them",
    "ops/": "spellings of names in files, and of compilers",
    "models/": "names in exported models",
    "pages/": "pages of the documentation, and its examples",
    "commands/": "numbers of errors, names of files, lines and examples of users",
    "codes/code.py": "lines of a page about an error",
    "tuned/": "a file of tuned schedules, and where its reader found an error",
    "explain/sizes.py:ranges_of": "the argument of an option",
    "hostir/checks.py:_called": "the user's line at which a check was asked for",
    "codegen/views.py:head": "the first line of the user's description",
    "codegen/views.py:_line": "the user's line, for the banner",
    "segment/fewer_values.py": "the user's line, for the names that it lists",
    # Names.
    "bench/figures.py": DOTS,
    "bench/streaming.py": "a name of two words as that of a kernel",
    "driver.py": "the program of a joint graph by the end of its name",
    "lowering.py": "names of passes that an option asks for",
    "emit/c.py:_Printer._build": "names of targets: one with a letter is for one GPU alone",
    "emit/c.py:_Printer._sizes": DOTS,
    "explain/sizes.py:_step_of": DOTS,
    "explain/specialised.py": DOTS,
    "explain/text.py:_overview": DOTS,
    "hostir/alignment.py": DOTS,
    "hostir/check.py": DOTS,
    "hostir/container.py": DOTS,
    "hostir/coverage.py": DOTS,
    "hostir/instructions.py:loop_name": DOTS,
    "hostir/unroll.py": DOTS,
    "kernel/ctext.py:_is_of_stride": "names of the fusion that might be the identifier of a stride",
    "kernel/ctext.py:word": "what no C identifier has goes out of a name of the fusion",
    "kernel/device.py:device_name": "a qualified name; of which header it is, a table says",
    "kernel/names.py": "names of the fusion, lengthened until they differ",
    "kernel/lowering/nest.py:Nest._atom": "a size of one word lends its name to a quotient by it",
    "kernel/nodes/expressions.py:operand": "what is meant as a name is one",
    "run/cache.py:Cache.cubin": "the lines of an entry of the cache",
    "run/cache.py:_decode": "the same",
    "run/entries.py:Entries.read": "its first line and its digest",
    "run/cache_size.py": "names of the cache's files, and the size that a user set",
    "run/binary/headers.py:device_headers": "names of files",
    "run/inputs.py": DOTS,
    "run/transports/nccl.py": "a function of NCCL by the name of ours",
    "schedule/common.py": DOTS,
    "schedule/rows/in_steps.py": "the operations of a family by the beginning of their names",
    # Sentences about segments.
    "explain/drawing.py": "the first word of a sentence about a tensor",
    "explain/groups.py:_prefixes": "the parts of a module, or the words of a value's name",
    "explain/model_text.py": "the parts of a module's path",
    "explain/modules.py": "the parts of a module's path",
    "explain/query.py": "words of a sentence as the key of a record",
    "explain/text.py:row": "spaces in a table at which no line is broken",
    "explain/text.py:resource": "the key of a record as words",
    "explain/text.py:rivals": "the part of a sentence about a segment after the first",
    "segment/offers.py": "names quoted in a reason, which are replaced",
    # Presentation: nothing is decided by it.
    "codegen/layout.py": "where lines of a finished text are broken",
    "emit/c.py:rendered": "the same, of launchers: the tables of machine code are not laid out",
    "explain/highlight.py": "colours of a finished text",
    "explain/page.py:_detail": "how many lines a finished text has",
    "codegen/render.py:Body.text": "the place of what is known once a template is rendered",
    "codegen/render.py:_Notes.__call__": "a string that is printed is noted if it is a name",
    "codegen/render.py:DeviceNames.__getattr__": "Python's own attributes",
    # Text that fusec has not rendered, or not yet.
    "kernel/ctext.py:_digits": "the exponent of a number as Python prints it",
    "kernel/counting/costs.py:of_operations": "formulas of operations without operands: no holes",
    "kernel/formulas.py": "the formulas of operations, from which nodes are made",
    "run/binary/headers.py:_INCLUDE": "includes of users' kernels and of the headers themselves",
    "emit/names.py:literal": "trigraphs in a C string",
    "escape.py": "comments and quotes in a text that is printed",
    # Others' text.
    "bench/counters.py": TOOL,
    "run/binary/compiler_log.py": TOOL,
    "run/device.py": TOOL,
    "run/binary/nvrtc.py": TOOL,
    "run/binary/version.py": TOOL,
    "run/distributed/process_state.py": TOOL,
    "run/binary/sass.py": TOOL,
    "run/distributed/ranks.py": "the number that an environment variable has",
    "run/distributed/watchdog.py": MESSAGE,
    "run/distributed/watchdog_process.py": MESSAGE,
}
"""Why a function, a file or a folder searches in strings: none of them finds a fact of a kernel."""

OF_STRINGS = {
    "endswith", "isalnum", "isalpha", "isdecimal", "isdigit", "isidentifier", "isnumeric",
    "partition", "removeprefix", "removesuffix", "rfind", "rindex", "rpartition", "rsplit",
    "splitlines", "startswith", "translate",
}  # fmt: skip
OF_SOME = {"count", "find", "index", "replace", "split"}
"""Methods of strings, and those that other types have as well: with a string they search in one."""
KEYED = {"attributes", "cuda", "modules"}
"""Attributes that are mappings: of operations, and of Python."""
PATTERNS = re.compile(r"\b(?:import re|from re)\b")
SEARCHES = re.compile(
    rf"{PATTERNS.pattern}|\.(?:{'|'.join(OF_STRINGS)})\(|[\"']\s+(?:not\s+)?in\s"
    rf"|\.(?:{'|'.join(OF_SOME)})\([^)]*[\"']"
    r"|(?:str\(|\.text\b|\.lines\b).*[=!]=|[=!]=.*(?:str\(|\.text\b|\.lines\b)"
)
"""What the text of a file has that may have a use: most need not be parsed."""
CONTAINERS = (
    "dict", "frozenset", "list", "set", "tuple", "Collection", "Container", "Counter", "Iterable",
    "Mapping", "Sequence",
)  # fmt: skip


def is_text(node: ast.expr) -> bool:
    """Return whether an expression is a string as it is written."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def containers(function: ast.AST) -> set[str]:
    """Return the names of a function that are containers, by their annotations and values."""
    found = set[str]()
    for node in ast.walk(function):
        match node:
            case (
                ast.arg(arg=name, annotation=ast.expr() as kind)
                | ast.AnnAssign(target=ast.Name(id=name), annotation=kind)
            ):
                if ast.unparse(kind).startswith(CONTAINERS):
                    found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_container(value):
                found.add(name)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                both = zip(names, values, strict=False)
                found |= {n.id for n, v in both if isinstance(n, ast.Name) and is_container(v)}
            case _:
                pass
    return found


def is_container(value: ast.expr) -> bool:
    """Return whether an expression is a container for sure."""
    displays = (ast.Dict, ast.DictComp, ast.List, ast.ListComp, ast.Set, ast.SetComp, ast.Tuple)
    if isinstance(value, ast.BinOp):
        return is_container(value.left)
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).startswith(CONTAINERS)
    if isinstance(value, ast.Attribute):
        return value.attr in KEYED
    return isinstance(value, displays)


def is_search(node: ast.AST, known: set[str]) -> bool:
    """Return whether an expression looks for something in a string; known: containers."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name), args=arguments):
            return name in OF_STRINGS or (name in OF_SOME and any(map(is_text, arguments)))
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[right]):
            if not is_text(left) or is_container(right):
                return False
            return not (isinstance(right, ast.Name) and right.id in known)
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
            return any(map(is_text, (left, right))) and any(map(is_printed, (left, right)))
        case _:
            return False


def is_printed(node: ast.expr) -> bool:
    """Return whether an expression is what something prints as: `str(node)`, `node.text`."""
    match node:
        case ast.Call(func=ast.Name(id="str")) | ast.Attribute(attr="text" | "lines"):
            return True
        case _:
            return False


def is_pattern(node: ast.AST) -> bool:
    """Return whether an expression uses a regular expression."""
    match node:
        case ast.ImportFrom(module="re"):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"))):
            return True
        case _:
            return False


def places(tree: ast.Module, searches: bool) -> Iterator[tuple[str, int]]:
    """Yield the function, or the constant, around each use, and its line.

    searches: whether strings are searched here, too, without a pattern.
    """

    def visit(node: ast.AST, around: str, known: set[str]) -> Iterator[tuple[str, int]]:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                around = f"{around}.{name}" if around else name
                known = known | (containers(node) if isinstance(node, ast.FunctionDef) else set())
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                around = around or name
            case _:
                pass
        if is_pattern(node) or (searches and is_search(node, known)):
            yield around, getattr(node, "lineno", 0)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, around, known)

    return visit(tree, "", set())


def uses_of(text: str, path: str, file: Path | None = None) -> dict[str, int]:
    """Return the uses in a text or a file, each by its function and with its first line."""
    found: dict[str, int] = {}
    searches = path.startswith(STAGES)
    if not (SEARCHES if searches else PATTERNS).search(text):
        return found
    tree = ast.parse(text) if file is None else tree_of(file)
    for around, line in places(tree, searches):
        found.setdefault(f"{path}:{around}" if around else path, line)
    return found


@cache
def uses() -> Mapping[str, int]:
    """Return the uses in the package."""
    found: dict[str, int] = {}
    for file in FILES:
        text, name = file.read_text(encoding="utf-8"), str(file.relative_to(PACKAGE))
        found |= uses_of(text, name, file)
    return found


def reason(use: str) -> str:
    """Return the entry of LEFT about a use: of its function, its file or its folder."""
    path = use.partition(":")[0]
    folders = path.split("/")[:-1]
    around = ["/".join(folders[: k + 1]) + "/" for k in range(len(folders))]
    return next((key for key in (use, path, *reversed(around)) if key in LEFT), "")


def template_searches(text: str) -> list[int]:
    """Return the lines on which a template makes text of a value, or compares it with a string."""
    tree = Environment(autoescape=False).parse(text)
    filters = tree.find_all(nodes.Filter)
    found = [f.lineno for f in filters if f.name in ("string", "replace", "select")]
    for compared in tree.find_all(nodes.Compare):
        sides = [compared.expr, *(operand.expr for operand in compared.ops)]
        found += [side.lineno for side in sides if is_word(side)]
    return found


def is_word(node: nodes.Expr) -> bool:
    """Return whether an expression of a template is a string."""
    return isinstance(node, nodes.Const) and isinstance(node.value, str)


PLANTED = {
    "codegen/sort/passes.py": "def f(v):\n    return 'fusec::i64' in v.text",
    "emit/plan.py": "def f(v):\n    return f'{v}->' in str(v)",
    "explain/page.py": "class A:\n    def f(self, v):\n        return v.text.count('{')",
    "kernel/facts.py": "def f(v):\n    return v.printed.endswith('ll')",
    "run/launch.py": "def f(v):\n    return str(v.type) == 'int'",
    "schedule/plan.py": "def f(text):\n    return text.partition('(')[0]",
    "target/table.py": "import re\n\ndef f(v):\n    return re.search('x', v)",
    "bench/work.py": "from re import compile\n",
}
"""A fact that is read from a text, by the file in which it might be."""


@pytest.mark.parametrize("path", PLANTED)
def test_a_planted_search_is_found(path: str) -> None:
    found = uses_of(PLANTED[path], path)
    assert [use for use in found if not reason(use)]


HARMLESS = (
    "def f(known: Mapping[str, int]):\n    return 'x' in known",
    "def f(v):\n    known = {n for n in v}\n    return 'x' not in known and v in ('a', 'b')",
    "def f(v):\n    return v.find(target) + v.index(1) + v.name.replace(path)",
    "def f(node):\n    return 'dtype' in node.attributes and node.text != other.text",
)


@pytest.mark.parametrize("text", HARMLESS)
def test_nothing_else_is_one(text: str) -> None:
    assert not uses_of(text, "codegen/sort/passes.py")


def test_templates_do_not_ask_for_text() -> None:
    found = {
        file.name: lines
        for file in sorted((PACKAGE / "templates").glob("*.j2"))
        if (lines := template_searches(file.read_text(encoding="utf-8")))
    }
    assert not found, "a view has a field that says it, or Jinja a test of nodes"
    assert template_searches('{{ 1 if k.index_type | string == "fusec::i64" }}')
    assert template_searches('{{ 1 if "fusec::i64" in k.type.text }}')


def test_each_search_in_a_string_is_argued() -> None:
    new = [f"{use}, line {line}" for use, line in uses().items() if not reason(use)]
    assert not new, "a fact about a kernel is one of its nodes, its view or its plan; see LEFT"


def test_no_reason_is_left_without_a_use() -> None:
    assert LEFT.keys() == {reason(use) for use in uses()} - {""}
