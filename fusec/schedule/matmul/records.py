"""The record of each GEMM kernel, and records with other settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusec.dataclasses import fields
from fusec.ir.annotations import Setting
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.gemv import GemvParameters
from fusec.schedule.matmul.hopper import PersistentParameters, SplitKParameters, StreamKParameters
from fusec.schedule.matmul.limits import STREAM_K
from fusec.schedule.matmul.portable import MmaParameters, SimtParameters
from fusec.segment.protocol import Refusal

RECORDS: Mapping[str, type[MatmulParameters]] = {
    record.kernel: record
    for record in (
        PersistentParameters, SplitKParameters, GemvParameters, MmaParameters, SimtParameters,
    )
}  # fmt: skip
"""The record of each kernel; `split_k` has another one for stream-K."""


def record_of(settings: Mapping[str, Setting]) -> type[MatmulParameters]:
    """Return the record class for some settings, which name an existing kernel."""
    record = RECORDS[str(settings["kernel"])]
    is_stream_k = record is SplitKParameters and settings.get("split_method") == STREAM_K
    return StreamKParameters if is_stream_k else record


def with_settings(
    parameters: MatmulParameters, settings: Mapping[str, Setting]
) -> MatmulParameters | Refusal:
    """Return a record with other settings, or which of them its kernel does not support.

    Fields that the kernel has, or lacks with its only supported value, keep their values.
    """
    own: dict[str, Any] = {f.name: getattr(parameters, f.name) for f in fields(parameters)}
    wanted: dict[str, Any] = {**own, "kernel": parameters.kernel, **settings}
    record = record_of(wanted)
    has = {f.name for f in fields(record)}
    for name, lacking in record.lacking.items():
        if name not in has and wanted.get(name, lacking.value) != lacking.value:
            return Refusal(lacking.rule, lacking.because.format(record.kernel))
    return record(**{name: value for name, value in wanted.items() if name in has})
