"""Which passes and choices a compilation disables, stops at or enables, by its options."""

from __future__ import annotations

from fusec.options import (
    ASKED,
    LOOPS_BY_COST,
    PEER_READS,
    PLAN_DEFINITIONS,
    PUSHED_ROWS,
    SCATTERED_SUMS,
    CompileOptions,
)


def last_passes(options: CompileOptions) -> tuple[str | None, str | None]:
    """Return the last pass over fusions and the last over host programs, None if not limited."""
    from fusec.passes.pipeline import one_of

    if options.stop_after is None:
        return None, None
    before, after = _pass_names()
    name = one_of([*before, *after], options.stop_after)
    return (name, None) if name in before else (None, name)


def _pass_names() -> tuple[list[str], list[str]]:
    """Return the names of the passes over fusions, and of those over host programs, in order."""
    from fusec.hostir.passes import PIPELINE as HOST_PIPELINE
    from fusec.passes import PIPELINE

    return [step.name for step in PIPELINE], [step.name for step in HOST_PIPELINE]


def left_out(options: CompileOptions) -> tuple[list[str], list[str], list[str]]:
    """Return the disabled passes over fusions, disabled passes over host programs and choices."""
    from fusec.passes import NEEDED
    from fusec.passes.pipeline import one_of

    known = _pass_names()
    choices = [LOOPS_BY_COST, PEER_READS, PUSHED_ROWS, SCATTERED_SUMS, *PLAN_DEFINITIONS]
    if options.as_written:
        return [name for name in known[0] if name not in NEEDED], known[1], choices
    every = [name for group in (*known, choices) for name in group]
    names = [one_of(every, name) for name in options.without]
    before, after, between = ([n for n in names if n in group] for group in (*known, choices))
    return before, after, between


def asked_for(options: CompileOptions) -> list[str]:
    """Return the passes over host programs and segments that options enable."""
    from fusec.passes.pipeline import one_of

    return [one_of(ASKED, name) for name in options.with_]


def check_pass_names(options: CompileOptions) -> None:
    """Raise FusecError if options name a pass that does not exist."""
    if options.stop_after is not None or options.without or options.with_:
        last_passes(options)
        left_out(options)
        asked_for(options)
