"""Checks the order of memory accesses in the text of rendered kernels: `check(text)`.

The text is parsed, device functions included, and followed for all threads of a block together
(`walk`); `order` keeps what is in order with what, `phases` runs the warps against each other on
the mbarriers. `effects` is the table of the functions that hold instructions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from fusec.run.binary.headers import device_headers, headers_for

from .calls import rename
from .effects import EFFECTS
from .order import Violation
from .parser import constants_of
from .phases import check_phases
from .scopes import Decisions, Scope
from .syntax import Function, Node, functions_of
from .values import Pointer, Unknown
from .walk import Walk

MOST_RUNS = 24  # of one kernel, each one way; the fewest unusual decisions first
ACCESSES = frozenset({"read", "write", "read_constant", "pure", "uniform"})
GROUPS = re.compile(r"constexpr int kGroups = (\d+);")
STAGES = re.compile(r"(constexpr int kStages = )(\d+);")
OWN_GROUP = "const int group = threadIdx.x / (32 * kWarps);"
TILES = "extern __shared__ __align__(16) char shared_memory[];"
TILE = re.compile(r"\(shared_memory \+ (k\w+Tile)\)")
RELEASES = frozenset({"acquire", "release", "exchange"})


@cache
def functions_of_header(text: str) -> tuple[Function, ...]:
    """Return the functions of a device header."""
    return tuple(functions_of(text))


@cache
def constants_of_header(text: str) -> tuple[Node, ...]:
    """Return the constants of a device header."""
    return tuple(constants_of(text))


def check(
    text: str, headers: Mapping[str, str] | None = None, until: str | None = None
) -> list[Violation]:
    """Return the violations in a kernel's text, by line; `headers` replace the device headers.

    With `until`, ways are tried until a violation of such a rule is found.
    """
    text = with_tiles_apart(of_one_group(text))
    used = headers_for(text, {**device_headers(), **(headers or {})})
    functions = functions_by_name(tuple(used.values()))
    kernels = [f for f in functions_of(text) if f.body.words is not None]
    found: dict[tuple[str, int, str], Violation] = {}
    for kernel in kernels:
        for violation in check_kernel(kernel, text, functions, used, until):
            found[violation.rule, violation.line, violation.message] = violation
    return sorted(found.values(), key=lambda v: (v.line, v.rule, v.message))


def with_tiles_apart(text: str) -> str:
    """Return a kernel whose tiles of rows are arrays of their own; the plan says where they lie."""
    names = TILE.findall(text)
    if not names or TILES not in text:
        return text
    arrays = "".join(f" extern __shared__ __align__(16) char tile_{name}[];" for name in names)
    return TILE.sub(r"(tile_\1)", text).replace(TILES, TILES + arrays)


def of_one_group(text: str) -> str:
    """Return a kernel of groups of warps with one of them: all do the same, on their own stages.

    What lies where for which group is left to the emulator.
    """
    found = GROUPS.search(text)
    if found is None or OWN_GROUP not in text:
        return text
    groups = int(found[1])
    text = STAGES.sub(lambda m: f"{m[1]}{int(m[2]) // groups};", text)
    text = GROUPS.sub("constexpr int kGroups = 1;", text)
    return text.replace(OWN_GROUP, "const int group = 0;")


@cache
def functions_by_name(headers: tuple[str, ...]) -> Mapping[str, list[Function]]:
    """Return the functions of device headers by name."""
    functions: dict[str, list[Function]] = {}
    for header in headers:
        for function in functions_of_header(header):
            functions.setdefault(function.name, []).append(function)
    return functions


@cache
def interesting_names(headers: tuple[str, ...]) -> frozenset[str]:
    """Return the functions that matter to order: those of the table, and who calls them."""
    functions = functions_by_name(headers)
    known = {n for n, e in EFFECTS.items() if e.kind not in ACCESSES}
    texts = {
        name: frozenset(t.text for f in each for t in f.tokens)
        for name, each in functions.items()
        if name not in EFFECTS
    }
    while True:
        more = {
            n for n, words in texts.items() if n not in known and words & (known | {"__shared__"})
        }
        if not more:
            return frozenset(known)
        known |= more


def check_kernel(
    kernel: Function,
    text: str,
    functions: Mapping[str, list[Function]],
    used: Mapping[str, str],
    until: str | None,
) -> list[Violation]:
    """Return the violations of one kernel over all ways through it."""
    interesting = interesting_names(tuple(used.values()))
    words = kernel.body.words
    if not (words & interesting) and "__shared__" not in text:
        return []
    constants = [n for t in used.values() for n in constants_of_header(t)] + constants_of(text)
    speaks = any(EFFECTS[w].kind in RELEASES for w in callees(words, functions) if w in EFFECTS)
    if speaks:
        interesting |= {
            n for n, e in EFFECTS.items() if e.kind in ("read", "write", "read_constant")
        }
    found: dict[tuple[str, int, str], Violation] = {}
    ways: list[tuple[int, ...]] = [()]
    written: set[str] = set()
    early: set[tuple[str, int]] = set()
    constant: set[tuple[str, int]] = set()
    for given in ways:  # grows
        walk = walk_once(
            kernel, text, functions, interesting, constants, Decisions(given), used, speaks
        )
        found |= walk.order.violations
        if until is not None and any(until in v.rule for v in found.values()):
            break
        written |= walk.order.written
        early |= set(walk.order.early_reads)
        constant |= set(walk.constant_reads)
        ways += walk.decisions.others()[: MOST_RUNS - len(ways)]
    result = list(found.values())
    for root, line in sorted(early) if speaks else ():
        if root in written:
            message = (
                f"reads {root}, which other blocks write, without an acquire and a barrier before"
            )
            result.append(Violation("acquire", line, message))
    for root, line in sorted(constant):
        if root in written:
            message = f"reads {root}, which this kernel writes, as constant data"
            result.append(Violation("constant read", line, message))
    return result


def callees(words: frozenset[str], functions: Mapping[str, list[Function]]) -> set[str]:
    """Return the functions that `words` lead to."""
    seen: set[str] = set()
    todo = list(words)
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name not in EFFECTS:
            todo += [t.text for f in functions.get(name, ()) for t in f.tokens]
    return seen


def walk_once(
    kernel: Function,
    text: str,
    functions: Mapping[str, list[Function]],
    interesting: frozenset[str],
    constants: list[Node],
    decisions: Decisions,
    used: Mapping[str, str],
    speaks: bool,
) -> Walk:
    """Follow a kernel one way."""
    probe = Walk(functions, interesting, (32, 1), decisions)
    declare(probe, constants)
    walk = Walk(functions, interesting, block_shape(probe), decisions)
    declare(walk, constants)
    walk.globals = walk.scope
    walk.speaks = speaks
    walk.fields = fields_of("".join(used.values()))
    walk.scope = Scope(walk.scope)
    for parameter in kernel.parameters:
        value = (
            Pointer(parameter.name, "global", type=parameter.type)
            if parameter.is_pointer
            else Unknown(parameter.name)
        )
        walk.scope.values[parameter.name] = value
    walk.run(kernel.body, walk.mask)
    walk.order.leave(~walk.gone, kernel.line)
    check_phases(walk.steps, walk.threads, walk.order.say)
    return walk


@cache
def fields_of(text: str) -> Mapping[str, int]:
    """Return the number of extents of every array that is declared in headers."""
    found = re.findall(r"^  +[\w:<>, ]+ (\w+)((?:\[[^\]]+\])+);", text, re.MULTILINE)
    return {name: extents.count("[") for name, extents in found}


def declare(walk: Walk, constants: list[Node]) -> None:
    """Declare what stands outside of functions."""
    for node in constants:
        if node.kind != "struct":
            walk.run(node, walk.mask)
            continue
        walk.scope = Scope(walk.globals)
        for member in node.kids:
            walk.run(member, walk.mask)
        inner, walk.scope = walk.scope, walk.globals
        rename(walk.scope.values, walk.scope.values, node.base, node.text)
        walk.scope.values |= {f"{node.text}::{n}": v for n, v in inner.values.items()}
        walk.scope.types |= {f"{node.text}::{n}": v for n, v in inner.types.items()}


def block_shape(walk: Walk) -> tuple[int, int]:
    """Return the threads of a block, from the constants that every kernel has."""
    values = walk.scope.values
    threads = values.get("kThreads", values.get("Config::kThreads"))
    x, y = values.get("kThreadsX"), values.get("kThreadsY")
    if isinstance(x, int) and isinstance(y, int) and x * y == threads:
        return x, y
    assert isinstance(threads, int), "a kernel says kThreads"
    return threads, 1


__all__ = ["Violation", "check"]
