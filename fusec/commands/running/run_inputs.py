"""Inputs of a run: its options, the files to read and write, the inputs and their sizes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusec.commands.report import no_array
from fusec.commands.running.verify import Judging
from fusec.dataclasses import dataclass, field, replace
from fusec.diagnostics import FusecError
from fusec.foreign import ARRAYS, check_file, memory_bytes
from fusec.models.folder import read_model_folder

if TYPE_CHECKING:
    from fusec.commands.running.run_page import RunPage
    from fusec.ir.graph import Fusion

SUFFIXES = (".safetensors", ".npz")


@dataclass(frozen=True)
class RunOptions:
    """Options of a run.

    device: auto, cuda or reference; repeats: timed runs (0: none); inputs, outputs, expect: files;
    times: print the time of each stage; values: print so many of each output; kind: of random
    inputs, reals or integers; judging: criteria for correctness; trace: a file for the time of each
    step; page: the HTML page to write; fixed: known inputs, such as the weights of a model.
    """

    device: str = "auto"
    seed: int = 0
    repeats: int = 20
    verify: bool = True
    inputs: str | None = None
    outputs: str | None = None
    expect: str | None = None
    times: bool = False
    values: int = 0
    kind: str = "reals"
    judging: Judging = field(default_factory=Judging)
    trace: str | None = None
    page: RunPage | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def files(self) -> tuple[str, ...]:
        """Return the given files, which belong to one fusion."""
        named = (self.inputs, self.outputs, self.expect, self.trace)
        return tuple(name for name in named if name is not None)


def check_files(options: RunOptions) -> None:
    """Raise FusecError for an unusable file before any work is done."""
    if options.kind != "reals" and options.inputs is not None:
        raise FusecError("--inputs-kind has no effect on the inputs of a file")
    for flag, name in (("--inputs", options.inputs), ("--expect", options.expect)):
        if name is not None:
            try:
                check_file(name, ARRAYS, memory_bytes())
            except FusecError as error:
                raise FusecError(f"{flag}: {error.diagnostic.message}") from None
    given = {"--inputs": options.inputs, "--outputs": options.outputs, "--expect": options.expect}
    for flag, name in given.items():
        if name is not None and Path(name).suffix not in SUFFIXES:
            raise FusecError(f"{flag} {name}: neither a .safetensors nor an .npz file")
    page = None if options.page is None else options.page.path
    written = {"--outputs": options.outputs, "--trace": options.trace, "--html": page}
    for flag, name in written.items():
        if name is None:
            continue
        folder = Path(name).absolute().parent
        if Path(name).is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
            raise FusecError(f"{flag} {name}: cannot be written there")


def inputs_of(fusion: Fusion, options: RunOptions) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the inputs of a file, or random ones, with their sizes."""
    from fusec.run.inputs import bind_sizes, choose_sizes, random_input, random_inputs

    if options.inputs is None:
        sizes = choose_sizes(fusion)
        if not options.fixed:
            return random_inputs(fusion, sizes, options.seed, options.kind), sizes
        missing = [i for i in fusion.inputs if i.value.name not in options.fixed]
        drawn = {i.value.name: random_input(fusion, i, sizes, options.seed) for i in missing}
        return {**options.fixed, **drawn}, sizes
    inputs = _load_inputs(fusion, options.inputs, options.seed, options.fixed)
    return inputs, bind_sizes(fusion, inputs)


def with_weights(path: str, options: RunOptions) -> RunOptions:
    """Return the options with the weights of a model's folder."""
    if options.kind != "reals":
        raise FusecError(
            "--inputs-kind has no effect on the weights of a model",
            help=f"run {os.path.join(path, 'fusion.yaml')} with random inputs",
        )
    return replace(options, fixed=read_model_folder(path).load_weights())


def _load_inputs(fusion: Fusion, path: str, seed: int, fixed: Mapping[str, Any]) -> dict[str, Any]:
    from fusec.run.arrays import as_declared, load_arrays
    from fusec.run.binding import generator_state

    arrays = {**fixed, **load_arrays(path)}
    inputs: dict[str, Any] = {}
    for entry in fusion.inputs:
        name = entry.value.name
        if name in arrays:
            array = as_declared(name, arrays[name], entry.value.dtype)
            inputs[name] = array.item() if entry.value.is_scalar and not array.shape else array
        elif entry.generator:
            inputs[name] = generator_state(entry, (seed, 0))
        elif entry.default is None:
            raise no_array(path, name, arrays)
    return inputs


def check_sizes(given: Mapping[str, int], sizes: Mapping[str, int]) -> None:
    """Raise FusecError if inputs have other sizes than the user set."""
    for name, size in given.items():
        if sizes.get(name, size) != size:
            raise FusecError(f"--set {name}={size}, but the inputs have {name}={sizes[name]}")


def at_sizes(fusion: Fusion, sizes: Mapping[str, int]) -> Fusion:
    """Return the fusion with its inputs' sizes as defaults, for which plans are made."""
    return replace(fusion, dims=tuple(replace(d, default=sizes[d.name]) for d in fusion.dims))
