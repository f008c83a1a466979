"""What a row kernel reads per vector: asynchronously copied rows, and per-column constants."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.dataclasses import dataclass
from fusec.index.access import Facts, vector_base
from fusec.index.instances import Instance, Lowering, instances_under, reading_order
from fusec.ir.expression import Var
from fusec.ir.identity_cache import IdentityCache
from fusec.schedule.rows.inner_outer_persistent.split import Split

_CACHE: IdentityCache[Work] = IdentityCache()
COPY_SIZES = (4, 8, 16, 32, 64)
"""Bytes of a vector that asynchronous copies support."""


@dataclass(frozen=True)
class Work:
    """The main kernel's loads and constants per vector, for a vector width.

    ring: row vectors that asynchronous copies can load; kept: other row vectors; constants: the
    largest values that depend on the column but not on the row; vectors: the loads that they read.
    """

    ring: tuple[Instance, ...]
    kept: tuple[Instance, ...]
    constants: tuple[Instance, ...]
    vectors: tuple[Instance, ...]


def _roots_of(split: Split, lowering: Lowering) -> list[Instance]:
    """Return the roots of the main kernel: inputs of its reductions, and outputs."""
    nodes = [n for n in split.main.nodes if n in split.domain.reduced]
    values = [n.inputs[0] for n in nodes] + [o.value for o in split.main.outputs]
    return [lowering.at_home(v) for v in values]


def work_of(split: Split, width: int) -> Work:
    """Return the loads and the column constants of the main kernel."""
    return _CACHE.of(split, width, lambda: _work_of(split, width))


def _work_of(split: Split, width: int) -> Work:
    lowering, _, (row, chunk, lane) = split.loops(width)
    columns = frozenset({chunk, lane})
    roots = _roots_of(split, lowering)
    ring: list[Instance] = []
    kept: list[Instance] = []
    found = instances_under(roots)
    # Copies skip rows past the end, so stale data in the ring must not become an address.
    places = set(instances_under([place for i in found for _, place in i.gathered]))
    for instance in found:
        if instance.kind != "load" or not instance.variables & columns:
            continue
        if row not in instance.variables or not _is_whole(split, instance, lane, width):
            continue
        plain = not instance.conditions and not instance.gathered and instance not in places
        copies = plain and width * instance.dtype.size in COPY_SIZES
        (ring if copies else kept).append(instance)
    constants = _constants(roots, row, columns)
    behind = [i for i in instances_under(constants) if i.kind == "load" and i.variables & columns]
    vectors = [i for i in behind if _is_whole(split, i, lane, width)]
    return Work(
        tuple(sorted(ring, key=_by_name)),
        tuple(sorted(kept, key=reading_order)),
        tuple(constants),
        tuple(sorted(vectors, key=reading_order)),
    )


def _by_name(instance: Instance) -> tuple[str, str]:
    return instance.name, str(instance.address)


def _is_whole(split: Split, load: Instance, lane: Var, width: int) -> bool:
    assert load.address is not None
    if width == 1:
        return True
    facts = Facts(split.main.hints)
    return vector_base(load.address, load.conditions, lane, width, facts) is not None


def _constants(roots: Iterable[Instance], row: Var, columns: frozenset[Var]) -> list[Instance]:
    """Return the largest instances that depend on a column and not on the row, in a fixed order."""
    found: dict[Instance, None] = {}
    seen: set[Instance] = set()
    stack = list(roots)
    while stack:
        instance = stack.pop()
        if instance in seen:
            continue
        seen.add(instance)
        fixed = row not in instance.variables and bool(instance.variables & columns)
        if fixed and instance.kind in ("load", "op", "select"):
            found[instance] = None
        elif instance.kind != "reduced":
            stack.extend(instance.operands)
    return sorted(found, key=_by_name)
