"""Passes over a fusion before segmentation, each a function in a file of its name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps

from fusec.ir.graph import Fusion
from fusec.passes.approximate import approximate
from fusec.passes.cancel_slices import cancel_slices
from fusec.passes.complex_as_pairs import complex_as_pairs
from fusec.passes.expand_repeats import expand_repeats
from fusec.passes.fold_constants import fold_constants
from fusec.passes.hoist_reciprocals import hoist_reciprocals
from fusec.passes.hoist_scales import hoist_scales
from fusec.passes.hoist_selections import hoist_selections
from fusec.passes.merge_broadcasts import merge_broadcasts
from fusec.passes.merge_casts import merge_casts
from fusec.passes.merge_pads import merge_pads
from fusec.passes.merge_permutes import merge_permutes
from fusec.passes.merge_reshapes import merge_reshapes
from fusec.passes.multiply_outer_products import multiply_outer_products
from fusec.passes.overrides import carry_overrides
from fusec.passes.pipeline import Observer, Pass, run_passes
from fusec.passes.protect_inputs import protect_inputs
from fusec.passes.remove_copies import remove_copies
from fusec.passes.remove_dead import remove_dead
from fusec.passes.scatters_as_selects import scatters_as_selects
from fusec.passes.share_expressions import share_expressions
from fusec.passes.specialize_units import specialize_units
from fusec.passes.squeeze_unit_reductions import squeeze_unit_reductions
from fusec.passes.tanh_to_sigmoid import tanh_to_sigmoid
from fusec.passes.update_slices import update_slices
from fusec.passes.view_outputs import view_outputs

__all__ = ["APPROXIMATIONS", "NEEDED", "PIPELINE", "Observer", "Pass", "run_pipeline"]


def _pass(run: Callable[[Fusion], Fusion]) -> Pass[Fusion]:
    @wraps(run)
    def with_overrides(fusion: Fusion) -> Fusion:
        return carry_overrides(fusion, run(fusion))

    return Pass(run.__name__, with_overrides)


PIPELINE: tuple[Pass[Fusion], ...] = tuple(
    _pass(run)
    for run in (
        complex_as_pairs,  # first: no other pass supports complex numbers
        fold_constants,  # first among reals: the other rules look for literals
        remove_copies,  # a `set` hides its operand from the rules below
        multiply_outer_products,  # before the broadcasts that it writes are merged
        specialize_units,  # before reductions of these extents are squeezed
        scatters_as_selects,  # before the nodes that it writes are merged and shared
        squeeze_unit_reductions,  # before squeezes and casts are merged
        hoist_scales,  # before the movements that it copies are merged
        merge_casts,
        merge_broadcasts,
        merge_permutes,
        merge_reshapes,
        view_outputs,  # after chains are short, before equal outputs become copies of one
        share_expressions,  # after chains are short: equal chains are equal nodes now
        cancel_slices,  # compares tensors by identity, so after sharing
        expand_repeats,  # the same
        merge_pads,
        hoist_selections,  # after slices of slices are one
        tanh_to_sigmoid,  # after chains are short, before the remaining operations are approximated
        hoist_reciprocals,
        approximate,
        update_slices,  # leaves joined slices without uses
        remove_dead,  # last of the rewrites: all of them leave nodes without uses
        protect_inputs,  # at the end: it looks at the remaining reads
    )
)


NEEDED = ("complex_as_pairs", "protect_inputs")
"""The passes that some fusions need to compile: the option `as_written` keeps them."""
APPROXIMATIONS = ("hoist_scales", "tanh_to_sigmoid", "hoist_reciprocals", "approximate")
"""The passes that use cheaper arithmetic: the option `precise` disables them."""


def run_pipeline(
    fusion: Fusion,
    *,
    without: Collection[str] = (),
    stop_after: str | None = None,
    observer: Observer[Fusion] | None = None,
) -> Fusion:
    """Return the fusion after all passes except those in `without`, up to `stop_after`.

    `observer` is called after each pass with the fusions before and after (the same object if
    nothing changed) and the seconds that it took.
    """
    return run_passes(PIPELINE, fusion, without=without, stop_after=stop_after, observer=observer)
