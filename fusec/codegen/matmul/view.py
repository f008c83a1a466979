"""The frozen views that the GEMM templates read."""

from __future__ import annotations

from fusec.codegen.views import KernelView
from fusec.dataclasses import dataclass
from fusec.kernel.nodes import Type
from fusec.schedule.matmul.kernel.product import MatmulNodes


@dataclass(frozen=True, kw_only=True)
class MatmulView(KernelView, MatmulNodes):
    """What every GEMM kernel has.

    has_layout: whether the members of its `Config` define the layout of shared memory.
    """

    index_type: Type
    has_layout: bool


@dataclass(frozen=True, kw_only=True)
class PersistentView(MatmulView):
    """The kernel with one CTA per SM over all tiles.

    consumers: warpgroups that multiply. ping_pong: whether each warpgroup has tiles of its own;
    swap_ab: whether columns of the result are the rows of wgmma; in_pairs: whether the CTAs of a
    cluster take neighbouring tiles; ctas: how many; splits: parts of tiles of the last wave;
    partials, arrivals: the buffers of their partial sums and of the counters. is_guarded: whether
    the epilogue runs only for elements of the result: it has a guarded store, or a tile may have no
    step of K (wgmma would be serialized otherwise); has_rest: whether the last staged columns are
    fewer than the others.
    """

    consumers: int
    ping_pong: bool
    swap_ab: bool
    in_pairs: bool
    ctas: int
    splits: int
    is_guarded: bool
    has_rest: bool
    partials: str = ""
    arrivals: str = ""


@dataclass(frozen=True, kw_only=True)
class VectorView(MatmulView):
    """The kernel that streams over B.

    has_slices: whether several blocks share K of a tile; partials, arrivals: then the names of the
    workspace and of the counters of blocks that have stored their sums there.
    """

    has_slices: bool
    partials: str = ""
    arrivals: str = ""


@dataclass(frozen=True, kw_only=True)
class SplitKView(MatmulView):
    """The kernel with K split over CTAs, and how several clusters sum a tile.

    is_serial: in ticket order, in_bulk: by bulk reductions, else by loads and stores;
    in_arrival_order: each adds to the sums on arrival; otherwise the last CTA to arrive adds all
    slices, or, without has_epilogue, a separate kernel. leaves_fragments: whether CTAs store their
    sums for it in wgmma's fragment layout; uses_setmaxnreg: whether a loading thread releases
    registers to those that multiply, and then returns; fetches_factors: whether further warps
    prefetch scales and zero points into L2; part: the type of four sums in a slice. in_clusters:
    whether several CTAs sum in shared memory; in_pairs: whether two CTAs take neighbouring tiles,
    and share what they load; has_partials: whether there are several clusters. tickets, turns,
    partials, arrivals: the names of the ticket counter, the semaphores, the workspace and the
    counters of slices; empty if there are none.
    """

    is_serial: bool
    in_bulk: bool
    in_arrival_order: bool
    in_clusters: bool
    in_pairs: bool
    has_partials: bool
    has_epilogue: bool
    leaves_fragments: bool
    uses_setmaxnreg: bool
    fetches_factors: bool
    part: Type
    tickets: str = ""
    turns: str = ""
    partials: str = ""
    arrivals: str = ""
