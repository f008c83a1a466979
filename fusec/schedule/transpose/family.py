"""The transpose scheduler: loads along another axis than the stores go through a shared tile."""

from __future__ import annotations

from typing import ClassVar

from fusec.dataclasses import replace
from fusec.index.access import Facts
from fusec.index.domain import find_domain
from fusec.index.instances import instances_under
from fusec.ir.dim import Dim, ceildiv, dim, product
from fusec.ir.expression import linearize
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import TEMPLATE_NAMES
from fusec.schedule.common import (
    dynamic_symbols,
    is_empty,
    specialise,
    tensor_arguments,
)
from fusec.schedule.family import Family
from fusec.schedule.plan import Kernel, Plan
from fusec.schedule.pressure import Pressure, flat_pressure, most_of
from fusec.schedule.problem import vector_guards
from fusec.schedule.requirements import flat
from fusec.schedule.run_time_sizes import Loops, with_run_time_sizes
from fusec.schedule.strides import as_one, innermost, strided_loads
from fusec.schedule.templates import Template
from fusec.schedule.transpose.accesses import matches, widest_accesses
from fusec.schedule.transpose.loads import along_columns, read_lowering, tiled_loads, write_lowering
from fusec.schedule.transpose.problem import Crossing
from fusec.schedule.transpose.tile import (
    COLUMNS,
    LINES,
    MOST_HELD,
    RUN_BYTES,
    SHARED_LIMIT,
    Tile,
    TransposeParameters,
    shapes,
)
from fusec.segment.protocol import Estimate, Refusal
from fusec.segment.traffic import traffic, work
from fusec.target import Target

WORD, NARROW = 4, 8
"""Bytes per access of one side, and of both, below which peeled vectors are preferred."""
LEAST_VECTORS = 4
"""Vectors of a line and of a column from which they are peeled for the sake of one side."""
MOST_UNITS = 1.25
"""Most vectors of larger tiles, including those at the ends, relative to the best tile shape."""
SHIFTED_OPERATIONS = 16
"""Operations per element of a tile with peeled vectors, filled or not.

As compiled by NVRTC 13.0 for tiles of 128 x 128 16-bit floats: 38 instructions per copied vector
and 50 per written one are 13 per element, and more for smaller tiles.
"""
ACCESS_OPERATIONS = 10
"""Operations per other access to a tile: from [4262347, 9] floats, whose tiles were 7 % full."""
FEWEST_TILES = 4
"""Tiles per SM below which smaller ones are used."""


TransposePlan = Plan[Crossing, TransposeParameters]


class Transpose(Family[Crossing, TransposeParameters, TransposePlan]):
    """Accepts pointwise segments with loads whose contiguous axis is not that of the stores."""

    name = "transpose"
    templates: ClassVar = {
        "transpose": Template("transpose.tiles"),
        "transpose_shifted": Template("transpose.shifted"),
    }
    reach = ("transpose",)
    vocabulary = TEMPLATE_NAMES

    def problem(self, segment: Fusion) -> Crossing | Refusal:
        """Return the segment with the axes of its tiles."""
        refusal = flat(segment)
        if refusal is not None:
            return refusal
        if is_empty(segment) or all(o.value.is_scalar for o in segment.outputs):
            return Refusal("empty", "there is nothing to transpose")
        crossing = cross(segment, specialise(segment, dynamic_symbols(segment))[0])
        if isinstance(crossing, Refusal):
            return crossing
        sides = (crossing.line.extent, crossing.column.extent)
        if min(s.evaluate(crossing.hints) for s in sides) < 8:
            return Refusal("tile", "a side of the tile has fewer than 8 elements")
        if not matches(crossing, 1, 1):
            because = "reshapes hide which loads are contiguous along the tile"
            return Refusal("access", because)
        return crossing

    def with_dynamic_sizes(self, problem: Crossing) -> Crossing:
        """Return the problem with dynamic numbers of independent tiles."""
        return _with_any_batch(problem)

    def default_parameters(
        self, problem: Crossing, target: Target
    ) -> TransposeParameters | Refusal:
        """Return the parameters: the widest accesses, and tiles that fill the GPU."""
        read, write = widest_accesses(problem, Facts(problem.hints))
        widest = 16 // min(*problem.sizes, _least_stored(problem))
        low, high = sorted((read * min(problem.sizes), write * _least_stored(problem)))
        shortest = min(v.extent.evaluate(problem.hints) for v in (problem.line, problem.column))
        one_side = low < WORD and shortest >= LEAST_VECTORS * widest
        shifted = high < NARROW or (low < NARROW and (one_side or 2 * shortest < COLUMNS[0]))
        tried_ones: list[TransposeParameters] = []
        if shifted and _check_shift(problem) is None:
            tried_ones = _with_tiles(problem, widest, widest, shifted=True)
        tried_ones = tried_ones or _with_tiles(problem, read, write, shifted=False)
        if not tried_ones:
            return Refusal("tile", f"no tile supports accesses of {read} and {write} elements")
        fewest = min(_units(problem, p) for p in tried_ones)
        found: TransposeParameters | None = None
        for tried in tried_ones:
            if _units(problem, tried) > MOST_UNITS * fewest:
                continue  # most of the tile would be out of bounds
            tile = Tile(tried, problem.sizes)
            found = found or tried
            tiles = _tiles(problem, tried) * product(a.extent for a in problem.others)
            enough = tiles.evaluate(problem.hints) >= FEWEST_TILES * target.sms
            if enough and max(tile.read_words, tile.write_words) <= MOST_HELD:
                return tried
            if not enough:
                found = tried
        assert found is not None
        return found

    def why_illegal(
        self, problem: Crossing, parameters: TransposeParameters, target: Target
    ) -> Refusal | None:
        """Return the rule that the parameters violate, or None if they are legal."""
        if parameters.shifted:
            why_illegal = _check_shift(problem) or _check_lines(parameters)
            return why_illegal or Tile(parameters, problem.sizes).why_illegal
        read, write = widest_accesses(problem, Facts(problem.hints))
        for name, width, most in (
            ("read_width", parameters.read_width, read),
            ("write_width", parameters.write_width, write),
        ):
            if width > most:
                return Refusal("access", f"{name} is at most {most} for this layout")
        if not matches(problem, parameters.read_width, parameters.write_width):
            because = f"no tile is read along {parameters.read_width} and written along"
            return Refusal("access", f"{because} {parameters.write_width} elements for this layout")
        return Tile(parameters, problem.sizes).why_illegal

    def plan(
        self, problem: Crossing, parameters: TransposeParameters, target: Target
    ) -> TransposePlan:
        """Return a plan of one kernel."""
        fusion, facts = problem.fusion, Facts(problem.hints)
        if not parameters.shifted:
            widest_accesses(problem, facts)
        tiles = _tiles(problem, parameters)
        kernel = Kernel(
            name=f"{fusion.name}_transpose",
            template="transpose_shifted" if parameters.shifted else "transpose",
            grid=(tiles * product(a.extent for a in problem.others), dim(1), dim(1)),
            block=(Tile(parameters, problem.sizes).threads, 1, 1),
            arguments=tensor_arguments(fusion),
        )
        guards = (*problem.index[1], *vector_guards(facts))
        about = self.name, fusion, (kernel,), parameters, (), guards, problem.specialised
        return Plan(*about, problem=problem)

    def estimate(self, plan: TransposePlan, target: Target) -> Estimate:
        """Return the estimate: the inputs and outputs once, through tiles."""
        problem, parameters = plan.problem, plan.parameters
        width = min(parameters.read_width, parameters.write_width)
        flops, sfu = work(problem.fusion)
        flops += _moving(problem, parameters)
        # The probe `scalar` has odd sides, whose vectors are peeled.
        by_elements = width == 1 or parameters.shifted
        reach = target.reach(self.name, "scalar" if by_elements else "vector")
        return Estimate(
            bytes=traffic(problem.segment),
            flops=flops,
            sfu=sfu,
            efficiency=reach * _whole_lines(problem, parameters),
            ctas=max(1, plan.kernels[0].grid[0].evaluate(problem.hints)),
        )

    def pressure(self, plan: TransposePlan, kernel: Kernel) -> Pressure:
        """Return the register pressure of the vectors that a thread reads, or writes."""
        tile = Tile(plan.parameters, plan.problem.sizes)
        width = 1 if plan.parameters.shifted else plan.parameters.write_width
        lowering, loops = write_lowering(plan.problem, width)
        writes = flat_pressure(lowering, loops, width, 1)
        reads = Pressure(staged=tile.read_words, arrays=len(tile.sizes))
        held = tile.write_words + (_ahead_words(plan) if plan.parameters.shifted else 0)
        return most_of([reads, replace(writes, staged=held)])


def _ahead_words(plan: TransposePlan) -> int:
    """Return the registers of a thread's prefetched loads that are contiguous along its columns."""
    p, tile = plan.parameters, Tile(plan.parameters, plan.problem.sizes)
    lowering, (line, column, _) = write_lowering(plan.problem, 1)
    for output in plan.fusion.outputs:
        lowering.at_home(output.value)
    loads = along_columns(lowering, line, column, p.write_width)
    words = sum(-(-i.dtype.size * p.write_width // 4) for i in loads)
    return 2 * words * (tile.write_units // tile.threads)


def _least_stored(crossing: Crossing) -> int:
    return min(o.value.dtype.size for o in crossing.fusion.outputs)


def _check_shift(crossing: Crossing) -> Refusal | None:
    """Return why no vectors of a crossing can be peeled, or None."""
    if len(crossing.fusion.outputs) > 1:
        return Refusal("access", "the vectors of several outputs have different alignments")
    parts = [i.part for i in crossing.fusion.inputs] + [o.part for o in crossing.fusion.outputs]
    if any(part is not None for part in parts):
        return Refusal("access", "real and imaginary parts are not contiguous")
    lowering, (column, line, lane) = read_lowering(crossing, 1)
    for output in crossing.fusion.outputs:
        lowering.at_home(output.value)
    if any(lowering.stored_where(o.value) for o in crossing.fusion.outputs):
        return Refusal("access", "a broadcast output is stored by some threads only")
    loads = tiled_loads(lowering, {line: 1, lane: 1}, column)
    if any(i.address is None or i.address.coefficient(column) is None for i in loads):
        return Refusal("access", "columns do not have a constant stride")
    indices = (i for made in lowering.made.values() for _, i in made.gathered)
    if not {*loads}.isdisjoint(instances_under(indices)):
        # Elements of vectors before the start or after the end of a line are not filled.
        return Refusal("access", "indices go through the tile, whose places are not all filled")
    return None


def _check_lines(p: TransposeParameters) -> Refusal | None:
    if min(p.read_width, p.write_width) == 1:
        return Refusal("access", "a single element cannot be unaligned")
    return None


def _tiles(crossing: Crossing, p: TransposeParameters) -> Dim:
    lines = ceildiv(crossing.line.extent, p.tile_lines)
    before = p.shifted * (p.write_width - 1)
    return lines * ceildiv(crossing.column.extent + before, p.tile_columns)


def _with_tiles(
    problem: Crossing, read: int, write: int, *, shifted: bool
) -> list[TransposeParameters]:
    """Return parameters with the given access widths and each legal tile."""
    every = (
        TransposeParameters(lines, columns, read, write, shifted, problem.wide)
        for lines, columns in shapes(min(problem.sizes), shifted=shifted)
    )
    return [p for p in every if Tile(p, problem.sizes).why_illegal is None]


def _units(crossing: Crossing, p: TransposeParameters) -> int:
    """Return the vectors read and written by all tiles of one batch."""
    tile = Tile(p, crossing.sizes)
    return _tiles(crossing, p).evaluate(crossing.hints) * (tile.read_units + tile.write_units)


def _moving(crossing: Crossing, p: TransposeParameters) -> float:
    """Return the operations that move all tiles, including positions out of bounds."""
    tiles = _tiles(crossing, p) * product(a.extent for a in crossing.others)
    places = tiles.evaluate(crossing.hints) * p.tile_lines * p.tile_columns
    if p.shifted:
        return SHIFTED_OPERATIONS * places
    return ACCESS_OPERATIONS * places * (1 / p.read_width + 1 / p.write_width)


def _whole_lines(crossing: Crossing, p: TransposeParameters) -> float:
    """Return the fraction of cache lines that the contiguous runs of a tile fill, on both sides."""
    outputs = (o.value.dtype.size for o in crossing.fusion.outputs)
    read, write = p.tile_lines * min(crossing.sizes), p.tile_columns * min(outputs)
    return (min(1.0, read / RUN_BYTES) + min(1.0, write / RUN_BYTES)) / 2


def _with_any_batch(strict: Crossing) -> Crossing:
    """Return the problem with more dynamic sizes, except the sides of a tile."""
    symbolic = find_domain(strict.segment)
    if isinstance(symbolic, Refusal):
        return strict
    sides = [len(strict.lines), len(strict.columns)]
    tile = {strict.domain.axes.index(a) for a in (*strict.lines, *strict.columns)}

    def made(fusion: Fusion) -> Crossing | Refusal:
        found = cross(strict.segment, fusion)
        alike = isinstance(found, Refusal) or [len(found.lines), len(found.columns)] == sides
        return found if alike else Refusal("axes", "axes merge only for some sizes")

    def loops(found: Crossing) -> Loops:
        widths = widest_accesses(found, Facts(found.hints))
        lowering, inner = write_lowering(found, widths[1])
        for output in found.fusion.outputs:
            lowering.at_home(output.value)
        return Loops(lowering, frozenset(inner), frozenset(inner[:1]), widths)

    fixed = (a.extent for k, a in enumerate(symbolic.axes) if k in tile)
    return with_run_time_sizes(strict, made, loops, fixed)


def cross(segment: Fusion, fusion: Fusion) -> Crossing | Refusal:
    """Return the tile axes of a segment, with sizes specialized, or why it has none."""
    domain = find_domain(fusion)
    if isinstance(domain, Refusal):
        return domain
    column = innermost(domain)
    strided = strided_loads(fusion, domain)
    lines = {s.axis for s in strided if s.axis is not None}
    if column is None or not lines:
        return Refusal(
            "no transposition", "every load is contiguous along the innermost axis of the stores"
        )
    if len(lines) > 1:
        return Refusal("axes", "the loads are contiguous along more than two axes")
    line = lines.pop()
    if any(s.load.conditions for s in strided if s.axis is line):
        return Refusal("conditions", "a transposed load reads only a part of the tile")
    sizes = tuple(s.load.dtype.size for s in strided if s.axis is line)
    lines, columns = as_one(fusion, domain, line, {column}), as_one(fusion, domain, column, {line})
    if set(lines) & set(columns):
        lines, columns = (line,), (column,)
    crossing = Crossing(segment, fusion, domain, lines, columns, sizes)
    for output in fusion.outputs:
        home = domain.homes[output.value]
        if home.conditions or {line, column} - home.variables:
            return Refusal("store_map", f"`{output.value.name}` does not span the tile")
        address = linearize(home.coordinates, fusion.effects.strides(output.value))
        if address.coefficient(column) != 1:
            return Refusal(
                "store_map",
                f"`{output.value.name}` is not contiguous along the columns of the tile",
            )
        if output.value in fusion.effects.into:
            return Refusal("in_place", f"`{output.value.name}` is written in place")
    if sum(sizes) * LINES[0] * COLUMNS[0] > SHARED_LIMIT:
        return Refusal("shared memory", "the tiles of all transposed loads do not fit")
    return crossing
