"""Compiled files on disk: everything that calls need of a fusion, by the text of its file.

A process that finds an entry neither parses the operations of the file nor plans.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fusec import trust
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.foreign import RECORD_BYTES, decode_json, read_bytes
from fusec.hostir.form import RECORDS
from fusec.hostir.program import HostProgram
from fusec.ir.dim import Dim, Shape
from fusec.ir.dtype import DType
from fusec.ir.graph import DimFact, Fusion, Input, Output, Type, Value
from fusec.ir.signature import RecordedSignature
from fusec.options import CompileOptions, environment
from fusec.plan_cache.shared import entries, option_texts, tree_digest
from fusec.run.cache import user_cache
from fusec.run.entries import digest_of
from fusec.target import own_file
from fusec.user_files import NO_FILES, TUNED, check_own, user_file

KIND = "call"
_LAYOUT = b"fusec call 1"
"""The first line of an entry; its number is increased whenever the format changes."""


@dataclass(frozen=True)
class CallInput:
    """An input without its source location."""

    name: str
    dtype: DType
    shape: Shape | None
    dim: Dim | None
    strides: Shape
    default: bool | int | float | None
    on_cpu: bool
    generator: str


@dataclass(frozen=True)
class CallOutput:
    """An output; alias: the input whose memory it is written into."""

    name: str
    dtype: DType
    shape: Shape
    alias: str | None


@dataclass(frozen=True)
class CompiledCall:
    """A compiled fusion. kernels: keys of their machine code; covers: supported sizes, as text."""

    name: str
    inputs: tuple[CallInput, ...]
    outputs: tuple[CallOutput, ...]
    dims: tuple[DimFact, ...]
    host: HostProgram
    covers: str
    kernels: Mapping[str, str]

    @property
    def signature(self) -> RecordedSignature:
        """Return the part of the fusion that calls need."""
        inputs = tuple(
            Input(
                Value(i.name, Type(i.dtype, i.shape, i.dim)), i.strides, default=i.default,
                on_cpu=i.on_cpu, generator=i.generator,
            )
            for i in self.inputs
        )  # fmt: skip
        types = ((o, Type(o.dtype, o.shape)) for o in self.outputs)
        outputs = tuple(Output(Value(o.name, kind), o.alias) for o, kind in types)
        return RecordedSignature(self.name, inputs, outputs, self.dims)

    def cubins(self) -> dict[str, bytes] | None:
        """Return the machine code of each kernel; None if any is no longer in the cache."""
        cache = user_cache()
        found = {name: cache.cubin(key) for name, key in self.kernels.items()}
        return None if None in found.values() else {n: c for n, c in found.items() if c is not None}


def key_of_call(
    parts: Sequence[str], arch: str, options: CompileOptions, compiler: str
) -> str | None:
    """Return the key of a compiled file; None where it is compiled each time.

    parts: its text, its path, and which of its fusions it is. options: must not name another file
    or a function. compiler: its name and version.
    """
    named = options.should_merge, options.schedule, options.rates, options.tuned
    if any(each is not None for each in named):
        return None
    tree, files = tree_digest(), _user_files(arch, options)
    if tree is None or files is None:
        return None
    return digest_of([tree, compiler, arch, *parts, *files, *option_texts(options)])


def _user_files(arch: str, options: CompileOptions) -> list[str] | None:
    """Return the contents of the user's files for a target; None if one may be another user's."""
    try:
        rates = own_file(arch)
        found = ["" if rates is None else _text(rates)]
        if options.untuned or environment(TUNED) == NO_FILES:
            return [*found, NO_FILES]
        tuned = user_file(arch)
        check_own(tuned)
        return [*found, _text(tuned) if tuned.exists() else ""]
    except (FusecError, OSError, trust.Untrusted):
        return None


def _text(path: Any) -> str:
    return read_bytes(path, "a file of a target", RECORD_BYTES).decode(errors="backslashreplace")


def recall_call(key: str) -> CompiledCall | None:
    """Return a compiled file; None where there is none."""
    body = entries().read(key, KIND, _LAYOUT)
    if body is None:
        return None
    data: Any = decode_json(body, "an entry of the cache")
    scalars = frozenset(i["name"] for i in data["inputs"] if i["shape"] is None)
    return RECORDS.decode(CompiledCall, data, "call", scalars)


def keep_call(
    key: str, local: Fusion, host: HostProgram, covers: str, kernels: Mapping[str, str]
) -> None:
    """Write what calls need of a per-rank fusion, if all of it can be written.

    Programs of several ranks are not written, nor those that check indices: the errors of checks
    name lines of the file.
    """
    several = local.phases or local.shardings or local.mesh is not None
    parts = any(e.part is not None for e in (*local.inputs, *local.outputs))
    inside = parts or any(isinstance(i.default, complex) for i in local.inputs)
    names = {launch.kernel for launch in host.launches}
    if several or inside or host.checks or not names <= kernels.keys():
        return
    call = CompiledCall(
        local.name, tuple(map(_input, local.inputs)), tuple(map(_output, local.outputs)),
        local.dims, host, covers, {name: kernels[name] for name in sorted(names)},
    )  # fmt: skip
    entries().write(key, KIND, _LAYOUT, json.dumps(RECORDS.encode(call)).encode(), counts=False)


def _input(entry: Input) -> CallInput:
    value, default = entry.value, entry.default
    assert not isinstance(default, complex)
    return CallInput(
        value.name, value.dtype, value.type.shape, value.dim, entry.strides, default,
        entry.on_cpu, entry.generator,
    )  # fmt: skip


def _output(entry: Output) -> CallOutput:
    return CallOutput(entry.value.name, entry.value.dtype, entry.value.shape, entry.alias)
