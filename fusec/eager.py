"""Eager execution and description of fusions, for a plain Python program."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from fusec.dataclasses import replace
from fusec.driver import Compilation, compile_fusion, for_device, reference
from fusec.options import CompileOptions

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion


def execute(fusion: Fusion, arrays: Sequence[Any]) -> list[Any]:
    """Return one array per output for a plain Python program that calls `fd.execute`.

    On the GPU if there is one; else by the reference, with a note on stderr. Outputs that are
    written into inputs are among them: the caller stores them.
    """
    from fusec.run.device import Device, device_available
    from fusec.run.inputs import bind_sizes

    fusion = replace(fusion, phases=())  # all inputs are passed at once
    inputs = {i.value.name: a for i, a in zip(fusion.inputs, arrays, strict=True)}
    sizes = bind_sizes(fusion, inputs)
    reason = device_available()
    if reason is not None:
        _note_reference(reason)
        results = reference(fusion, inputs, sizes)
    else:
        from fusec.run.execute import execute as run_program

        with Device() as device:
            options = for_device(CompileOptions(), device.facts)
            package = compile_fusion(fusion, options)
            cubins = package.cubins(options.target)
            results = run_program(device, package.program.host, cubins, inputs, sizes)
    return [results[o.value.name] for o in fusion.outputs]


def describe(fusion: Fusion, what: str) -> str:
    """Return the kernels (`cuda`) or the segments (nvFuser's text) that a fusion is compiled to.

    `schedulers`: the name of each segment's, in order.
    """
    program = Compilation(replace(fusion, phases=()), CompileOptions())
    if what == "schedulers":
        return " ".join(s.scheduler for s in program.segmented.segments)
    if what == "cuda":
        return "\n".join(source.text for source in program.kernel_sources)
    from fusec.dumps.nvfuser import segmented_fusion_text

    return segmented_fusion_text(program.segmented)


@cache
def _note_reference(reason: str) -> None:
    print(f"fusec: results come from the fp64 reference ({reason})", file=sys.stderr)
