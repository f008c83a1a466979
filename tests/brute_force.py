"""The cheapest segmentation by trying all of them, from the inputs on, and small random fusions."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import combinations, count

from fake_schedulers import H200

from fusec.ir.graph import Fusion, Node, Value
from fusec.parse import read_text
from fusec.segment.cheap import is_injective
from fusec.segment.offers import Offers, Surroundings
from fusec.segment.protocol import Scheduler
from fusec.segment.segmented import extract

Stored = frozenset[Value]
State = tuple[Stored, Stored, frozenset[Node]]
"""What may be read, which outputs are put out, what must not be computed again."""


def subsets(items: Sequence[Value]) -> Iterator[frozenset[Value]]:
    for size in range(len(items) + 1):
        yield from (frozenset(c) for c in combinations(items, size))


def cheapest(fusion: Fusion, schedulers: Sequence[Scheduler]) -> int:
    """Return the fewest bytes of any sequence of segments: Dijkstra over what lies in memory."""
    nodes = [n for n in fusion.nodes if not all(v.is_scalar for v in n.outputs)]
    inputs = frozenset(i.value for i in fusion.inputs)
    final = frozenset(o.value for o in fusion.outputs) - inputs
    asked = [Offers((s,), H200) for s in schedulers]
    prices: dict[tuple[frozenset[Node], Stored, Stored], int | None] = {}

    def price(chosen: frozenset[Node], results: Stored, read: Stored) -> int | None:
        key = (chosen, results, read)
        if key not in prices:
            part = extract(fusion, chosen, "part", results)
            around = Surroundings(frozenset(), read)
            found = [o.of(part, around).estimate for o in asked]
            prices[key] = min((e.bytes + e.workspace_bytes for e in found if e), default=None)
        return prices[key]

    groups = [frozenset(c) for size in range(1, len(nodes) + 1) for c in combinations(nodes, size)]
    leaves = {
        g: frozenset(v for n in g for v in n.inputs) - {v for n in g for v in n.outputs}
        for g in groups
    }
    start: State = (frozenset(), frozenset(), frozenset())
    queue: list[tuple[int, int, State]] = [(0, 0, start)]
    best: dict[State, int] = {start: 0}
    order = count(1)
    while queue:
        cost, _, state = heappop(queue)
        if cost > best[state]:
            continue
        readable, put, done = state
        if put == final:
            return cost
        for group in groups:
            if not leaves[group] <= readable | inputs or group & done:
                continue
            made = [v for n in nodes if n in group for v in n.outputs]
            for results in subsets([v for v in made if v not in readable and v not in put]):
                if not all(leads(fusion, n, group, results) for n in group):
                    continue
                for read in subsets(sorted(results, key=lambda v: v.name)):
                    if not results <= read | final:
                        continue
                    more = price(group, results, read)
                    if more is None:
                        continue
                    once = frozenset(n for n in group if not is_injective(n))
                    after = (readable | read, put | results & final, done | once)
                    if cost + more < best.get(after, 1 << 60):
                        best[after] = cost + more
                        heappush(queue, (cost + more, next(order), after))
    raise AssertionError("some node has no scheduler")


def leads(fusion: Fusion, node: Node, group: frozenset[Node], results: Stored) -> bool:
    """Return whether a segment needs one of its nodes for its results."""
    return any(
        v in results
        or any(u in group and leads(fusion, u, group, results) for u in fusion.users.get(v, ()))
        for v in node.outputs
    )


def small_fusion(seed: int, most: int = 6) -> Fusion:
    """Return a random fusion of a few nodes, with reductions over rows and columns."""
    rng = random.Random(seed)
    sizes = {"A": rng.choice([8, 64]), "B": rng.choice([8, 32, 256])}
    full, rows, columns = ["x", "y"], list[str](), list[str]()
    lines: list[str] = []
    for number in range(rng.randint(2, most)):
        name, kind = f"t{number}", rng.random()
        if kind < 0.25:
            axis = rng.choice([0, 1])
            lines.append(f"{name} = sum({rng.choice(full)}, dims=[{axis}])")
            (columns if axis == 0 else rows).append(name)
        elif kind < 0.5:
            kinds = [k for k in (full, rows, columns) if k]
            chosen = rng.choice(kinds)
            lines.append(f"{name} = {rng.choice(['exp', 'neg'])}({rng.choice(chosen)})")
            chosen.append(name)
        elif kind < 0.6:
            lines.append(f"{name} = cast({rng.choice(full)}, bf16)")
            full.append(name)
        elif kind < 0.75 and columns:
            lines.append(f"{name} = mul({rng.choice(full)}, {rng.choice(columns)})")
            full.append(name)
        else:
            lines.append(f"{name} = add({rng.choice(full)}, {rng.choice(full)})")
            full.append(name)
    used = " ".join(lines)
    last = [f"t{k}" for k in range(len(lines)) if f"t{k}" not in used.split(f"t{k} =", 1)[1]]
    extra = [f"t{k}" for k in range(len(lines)) if rng.random() < 0.2]
    outputs = sorted({*last, *extra})
    dims = ", ".join(f"{k}: {v}" for k, v in sizes.items())
    ops = "".join(f"  - {line}\n" for line in lines)
    given = '  x: "f32[A, B]"\n' + ('  y: "f32[A, B]"\n' if "y" in used else "")
    head = f"fusion: small\ndims: {{{dims}}}\ninputs:\n{given}"
    return read_text(f"{head}ops:\n{ops}outputs: [{', '.join(outputs)}]\n")
