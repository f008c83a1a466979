"""The loops of pointwise kernels: rows of vectors, or one flat loop over vectors."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.index.domain import Domain
from fusec.index.instances import Instance, Lowering, instances_under
from fusec.ir.access import Conditions
from fusec.ir.expression import Index, Var, linearize
from fusec.ir.graph import Fusion
from fusec.ir.identity_cache import IdentityCache
from fusec.properties import cached_property
from fusec.schedule.pointwise.loads import Loads, loads_of
from fusec.schedule.pointwise.shifted import shifted_start
from fusec.schedule.rows.domain import Rows


@dataclass(frozen=True)
class Access:
    """The address of a loaded or stored element, its bytes, and the load (None for a store)."""

    address: Index
    conditions: Conditions
    size: int
    load: Instance | None = None


def accesses(lowering: Lowering) -> list[Access]:
    """Return every store and load."""
    fusion = lowering.fusion
    found: list[Access] = []
    roots: list[Instance] = []
    for output in fusion.outputs:
        coordinates, conditions = lowering.home(output.value)
        address = linearize(coordinates, fusion.effects.strides(output.value))
        found.append(Access(address, conditions, output.value.dtype.size))
        roots.append(lowering.at(output.value, coordinates, conditions))
    for i in instances_under(roots):
        if i.kind == "load" and i.address is not None:
            found.append(Access(i.address, i.conditions, i.dtype.size, i))
    return found


@dataclass(frozen=True, eq=False)
class FlatNest:
    """The loops over the domain of a fusion, by vectors of `width` elements.

    break_point: how many of the axes index rows, 0 for a flat loop; shifted: whether vectors are
    peeled to alignment.
    """

    fusion: Fusion
    domain: Domain
    break_point: int
    width: int
    shifted: bool = False

    @cached_property
    def rows(self) -> Rows:
        """Return the axes as rows of columns, one row for a flat loop."""
        axes = self.domain.axes
        return Rows(axes[: self.break_point], axes[self.break_point :])

    @property
    def loops(self) -> tuple[Var, Var, Var]:
        """Return the loop variables: row, chunk and lane."""
        return self.rows.variables(self.width, self.shifted)

    @cached_property
    def lowering(self) -> Lowering:
        """Return the values in the loops."""
        binding = self.rows.bind(self.width, self.shifted)
        return Lowering(self.fusion, self.domain, binding, inside=frozenset(self.loops[:2]))

    @cached_property
    def start(self) -> Index | None:
        """Return the address of peeled vectors, or None if they are impossible."""
        if not self.break_point or not self.shifted:
            return None
        return shifted_start(self.fusion, self.domain, self.lowering, self.loops)

    @cached_property
    def loads(self) -> Loads:
        """Return the loads of a thread."""
        return loads_of(self.lowering, self.loops, self.break_point, self.start)

    @cached_property
    def accesses(self) -> list[Access]:
        """Return every store and load."""
        return accesses(self.lowering)


_CACHE: IdentityCache[FlatNest] = IdentityCache()


def nest_of(
    fusion: Fusion, domain: Domain, break_point: int, width: int, shifted: bool = False
) -> FlatNest:
    """Return the loops for a break point and a vector width."""
    about = id(domain), break_point, width, shifted
    return _CACHE.of(fusion, about, lambda: FlatNest(fusion, domain, *about[1:]))
