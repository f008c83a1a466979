"""Programs of files that an earlier process has compiled, loaded without reading operations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from fusec.call.program import Program
from fusec.call.variants import Variant
from fusec.dataclasses import dataclass
from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.foreign import TEXT_BYTES, read_bytes
from fusec.ir.signature import RecordedFusion
from fusec.options import DEBUG_FLAGS, CompileOptions, environment
from fusec.plan_cache.calls import keep_call, key_of_call, recall_call
from fusec.plan_cache.shared import may_keep
from fusec.run.binary.version import compiler_version
from fusec.run.device import device_available, device_capability
from fusec.target import TARGETS, nearest_arch

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion
    from fusec.run.device import Device


@dataclass(frozen=True)
class Request:
    """A compilation request: a file with its text, for one target, and the key of its entry."""

    path: str
    data: bytes
    part: str | None
    options: CompileOptions
    arch: str
    key: str


def request_of(source: Any, part: str | None, options: CompileOptions) -> Request | None:
    """Return the request to compile a file for a target; None for sources compiled each time."""
    if not (isinstance(source, (str, os.PathLike)) and may_keep(options)):
        return None
    path = str(source)  # pyright: ignore[reportUnknownArgumentType]
    if "\n" in path or path.endswith(".py") or not os.path.isfile(path):
        return None
    arch = options.target if options.targets_given else _own_arch()
    if arch is None:
        return None
    try:
        data = read_bytes(path, "a fusion file", TEXT_BYTES)
        flags = DEBUG_FLAGS if environment("FUSEC_DEBUG") else ()
        compiler = f"{compiler_version()} {' '.join(flags)}"
        parts = [path, data.decode(), repr(part)]
        key = key_of_call(parts, arch, options, compiler)
    except (FusecError, EnvironmentProblem, UnicodeDecodeError):
        return None  # compiling it reports the reason
    return None if key is None else Request(path, data, part, options, arch, key)


def _own_arch() -> str | None:
    """Return the target of the first GPU, None without one."""
    capability = None if device_available() is not None else device_capability()
    return None if capability is None else nearest_arch(TARGETS, capability)


def recorded_program(request: Request, *, build: bool) -> Program | None:
    """Return the program that an earlier process has compiled; None without a whole record."""
    call = recall_call(request.key)
    cubins = None if call is None else call.cubins()
    if call is None or cubins is None:
        return None

    @cache
    def fusion() -> Fusion:
        from fusec.compiling import fusion_of

        return fusion_of(request.data.decode(), request.path, request.options, request.part)

    def local() -> Fusion:
        from fusec.shard.partition import partition

        return partition(fusion())

    def make(sizes: Mapping[str, int], device: Device | None) -> Variant:
        from fusec.compiling import maker

        return maker(fusion(), request.options)(sizes, device)

    def evaluate(
        local: Fusion, inputs: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> Mapping[str, Any]:
        from fusec.compiling import evaluator

        return evaluator(fusion())(local, inputs, sizes)

    variant = Variant(call.host, {request.arch: cubins}, call.covers, entries=call.kernels)
    known = RecordedFusion(call.signature, local)
    return Program(known, [variant], make if build else None, evaluate)


def keep_program(request: Request, program: Program) -> None:
    """Record a program for later processes, if all of it can be recorded."""
    if len(program.variants) != 1:
        return
    (variant,) = program.variants
    whole = {*variant.cubins} == {request.arch} and all(variant.entries.values())
    try:
        same = read_bytes(request.path, "a fusion file", TEXT_BYTES) == request.data
    except FusecError:
        return
    if whole and same and not variant.evaluated:
        keep_call(request.key, program.fusion, variant.host, variant.covers, variant.entries)
