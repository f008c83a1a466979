"""Expected errors by simulation: evaluations in which each operation is off by its own error.

What passes through an operation is bounded to first order, by absolute values: after some layers of
a model the bound is thousands of times larger than any error, and a verdict by it is inconclusive.
Here the fusion is evaluated several times in doubles, and each result is moved by random numbers
with the variances of that operation's own error, of exact operands: Monte Carlo arithmetic (Parker,
1997). Errors of one origin then cancel or add up as they do in a kernel. Equal elements are moved
alike, since they are rounded alike.

Few evaluations do not sample rare discontinuities: where an inexact value is compared, rounded to a
16-bit float and read, or made an integer, nothing is simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod, sqrt
from typing import Any

from fusec.dataclasses import dataclass, replace
from fusec.ir.arrays import np, on_gpu
from fusec.ir.evaluate import Array, Sizes, extents
from fusec.ir.graph import Fusion, Node, Value, needed_nodes
from fusec.processors import usable_processors
from fusec.reference import memory
from fusec.reference.cost import Costs, speedup, useful_threads
from fusec.reference.errors.estimate import SPREAD, Estimate, add, distance, squared, unit
from fusec.reference.errors.nodes import PLAIN, Environment, Model, Nodes
from fusec.reference.evaluate import input_array, last_uses, widen_input

RUNS = 8
"""Evaluations. The mean square of eight is below 1/64 of the variance once in 10**7."""
MARGIN = 2.0
"""Safety factor on simulated errors: own errors are neither normal nor quite independent."""
PLAIN_SHARE = 0.25
"""Time of an evaluation without expected errors, relative to one with them."""
ARRAYS = 4
"""Arrays of an inexact value that are stored for all evaluations."""
_FACTORS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""The constants of splitmix64 (Steele, Lea, Flood, 2014), which mixes the bits of an integer."""


@dataclass(frozen=True)
class _Own:
    """The own error of one result: standard deviations, and equal integers for equal elements.

    common: with the signs of the elements, as errors of approximations are relative to them.
    """

    independent: Array | None
    common: Array | None
    alike: Array

    @property
    def is_any(self) -> bool:
        """Return whether there is an error, of the operation or of its operands."""
        return self.independent is not None


@dataclass(frozen=True)
class _Base:
    """The unperturbed evaluation: exact values, own errors, and wanted values that have one.

    None of these comes from a value that may be discontinuous.
    """

    exact: Environment
    own: Mapping[Value, _Own]
    wanted: Mapping[Value, Estimate]


def simulate(
    fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes, model: Model,
    wanted: Sequence[Value], limit: float, seed: int,
) -> dict[Value, Estimate]:  # fmt: skip
    """Return values with their simulated errors; none if simulation is not possible.

    limit: maximum predicted seconds.
    """
    nodes = needed_nodes(fusion.nodes, wanted)
    threads = 1 if on_gpu() else min(RUNS, useful_threads(usable_processors()))
    if model.hops or model.ranks or not _is_affordable(fusion, nodes, sizes, limit, threads):
        return {}
    given = _inputs(fusion, nodes, wanted, inputs, sizes)
    with np.errstate(all="ignore"):
        base = _unmoved(fusion, nodes, given, sizes, model, wanted)
        if not base.wanted:
            return {}
        plain, nodes = Nodes(fusion, sizes, PLAIN), needed_nodes(nodes, base.wanted)

        def run(number: int) -> list[Array]:
            with np.errstate(all="ignore"):
                return _moved(plain, nodes, base, (seed, number))

        squares = [np.zeros(e.value.shape) for e in base.wanted.values()]
        for offs in _each(run, threads):
            squares = [s + o for s, o in zip(squares, offs, strict=True)]
        pairs = zip(base.wanted.items(), squares, strict=True)
        return {v: replace(e, independent=_variance(s)) for (v, e), s in pairs}


def _is_affordable(
    fusion: Fusion, nodes: Sequence[Node], sizes: Sizes, limit: float, threads: int
) -> bool:
    seconds = Costs(fusion, sizes).evaluated(nodes)
    seconds *= 1 + RUNS * PLAIN_SHARE / speedup(threads)
    elements = sum(prod(extents(v.type, sizes)) for n in nodes for v in n.outputs)
    size = memory.DOUBLE * elements * (ARRAYS + threads)
    return seconds <= limit and size <= memory.SHARE * memory.available()


def _inputs(
    fusion: Fusion, nodes: Sequence[Node], wanted: Sequence[Value], inputs: Mapping[str, Any],
    sizes: Sizes,
) -> Environment:  # fmt: skip
    read = {v for n in nodes for v in n.inputs} | set(wanted)
    return {
        i.value: Estimate(np.asarray(widen_input(i.value, input_array(i, inputs, sizes))))
        for i in fusion.inputs
        if i.value in read
    }


def _unmoved(
    fusion: Fusion, nodes: Sequence[Node], given: Environment, sizes: Sizes, model: Model,
    wanted: Sequence[Value],
) -> _Base:  # fmt: skip
    """Return the evaluation with the own error of each operation, without discontinuous values."""
    rules, values, lost = Nodes(fusion, sizes, model), dict(given), set[Value]()
    own, kept = dict[Value, _Own](), dict[Value, Estimate]()
    for node, dead in zip(nodes, last_uses(nodes, wanted), strict=True):
        inexact = any(v in own for v in node.inputs)
        jumps = inexact and (node.op.discontinuous or node.op.compares)
        if jumps or not lost.isdisjoint(node.inputs):
            lost.update(node.outputs)
            continue
        results = rules.results(node, values)
        errors = [_own(rules, node, found, inexact=inexact) for found in results]
        pairs = list(zip(node.outputs, results, errors, strict=True))
        if any(e is None or (e.is_any and _may_jump(fusion, v)) for v, _, e in pairs):
            lost.update(node.outputs)
            continue
        values |= {v: Estimate(f.value, rounds_to=f.rounds_to) for v, f, _ in pairs}
        own |= {v: e for v, _, e in pairs if e is not None and e.is_any}
        kept |= {v: values[v] for v in wanted if v in node.outputs}
        for value in dead:
            if value in own:
                del values[value]
    exact = {v: e for v, e in values.items() if v not in own}
    return _Base(exact, own, {v: e for v, e in kept.items() if v in own})


def _may_jump(fusion: Fusion, value: Value) -> bool:
    """Return whether a result of inexact operands is not a float, or is rounded and read."""
    if not value.dtype.is_float:
        return True
    return value.dtype.is_half and bool(fusion.users.get(value))


def _own(rules: Nodes, node: Node, found: Estimate, *, inexact: bool) -> _Own | None:
    """Return the own error of one result; None if unknown.

    One of inexact operands is rounded once at least, though the reference's may be exact. Sums that
    truncate products all lose by it alike.
    """
    value, dtype = found.value, node.output.dtype
    if not inexact and found.exact:
        return _Own(None, None, value)
    if dtype.is_complex:
        return None  # the errors of the two parts are not separate
    independent = np.zeros(value.shape) if found.independent is None else found.independent
    if inexact and node.op.family != "movement" and not node.op.chooses and not node.op.converts:
        rounding = squared(value) * ((unit(dtype) / 2) ** 2 * SPREAD)
        independent = np.maximum(independent, np.where(np.isfinite(value), rounding, 0.0))
    drifts = any(order.group > 1 for order in rules.rules(node).orders)
    common = add(found.common, independent if drifts else None)
    arrays = [np.sqrt(a) for a in (independent, common) if a is not None]
    if not all(np.isfinite(a).all() for a in arrays):
        return None
    bits = np.ascontiguousarray(value.astype(np.float32)).view(np.uint32).reshape(value.shape)
    return _Own(arrays[0], np.copysign(arrays[1], value) if len(arrays) > 1 else None, bits)


def _each(run: Any, threads: int) -> Iterator[list[Array]]:
    if threads == 1:
        yield from map(run, range(RUNS))
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(run, range(RUNS))


def _moved(plain: Nodes, nodes: Sequence[Node], base: _Base, seed: tuple[int, int]) -> list[Array]:
    """Return the squared errors of wanted values, with each operation off by its own error."""
    values, rng = dict(base.exact), np.random.default_rng(seed)
    for node, dead in zip(nodes, last_uses(nodes, base.wanted), strict=True):
        if base.own.keys().isdisjoint(node.outputs):
            continue
        for value, found in zip(node.outputs, plain.results(node, values), strict=True):
            own = base.own.get(value)
            values[value] = found if own is None else replace(
                found, value=found.value + _off(own, rng)
            )  # fmt: skip
        for value in dead:
            values.pop(value, None)
    return [squared(distance(values[v].value, e.value)) for v, e in base.wanted.items()]


def _off(own: _Own, rng: Any) -> Array:
    """Return random errors, uniform as roundings are; a common error scales all elements."""
    key, sign = np.uint64(rng.integers(1 << 63)), float(rng.choice((-1.0, 1.0)))
    assert own.independent is not None
    off = own.independent * (sqrt(3) * _spread(own.alike, key))
    return off if own.common is None else off + own.common * sign


def _spread(alike: Array, key: Any) -> Array:
    """Return numbers in [-1, 1), equal ones for equal 32-bit integers."""
    first, *others = map(np.uint64, _FACTORS)
    mixed = (alike.astype(np.uint64) ^ key) * first
    for shift, factor in zip((30, 27), others, strict=True):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1


def _variance(squares: Array) -> Array:
    """Return the variance of an error from its squares: no less than the mean of the row."""
    squares = np.where(np.isnan(squares), np.inf, squares) * (MARGIN**2 / RUNS)
    if not squares.ndim:
        return squares
    return np.maximum(squares, np.mean(squares, axis=-1, keepdims=True))
