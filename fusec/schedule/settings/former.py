"""Former names of schedule fields and of their values, which files may still have."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass
from fusec.ir.annotations import Setting


@dataclass(frozen=True)
class Former:
    """A former field, or a present one some of whose values were called otherwise.

    fields: the present fields. values: what they are for a former value; any other value is that
    of the one present field.
    """

    fields: tuple[str, ...]
    values: Mapping[Setting, tuple[Setting, ...]]

    def now(self, value: Setting) -> Mapping[str, Setting] | None:
        """Return the present fields for a value; None where several fields need a known value."""
        values = self.values.get(value, (value,))
        if len(values) != len(self.fields):
            return None
        return dict(zip(self.fields, values, strict=True))


def _renamed(name: str) -> Former:
    return Former((name,), {})


_CLUSTERS: Mapping[Setting, tuple[Setting, ...]] = {
    "none": (1, 1), "b": (2, 1), "a": (1, 2), "both": (2, 2),
    "4x1": (4, 1), "1x4": (1, 4), "4x2": (4, 2), "2x4": (2, 4),
}  # fmt: skip

FORMER: Mapping[str, Mapping[str, Former]] = {
    "matmul": {
        "kernel": Former(("kernel",), {"vector": ("gemv",)}),
        "cluster": _renamed("cluster_k"),
        "split_method": Former(
            ("split_method",), {"two_kernel": ("two_pass",), "ranges": ("stream_k",)}
        ),
        "multicast": Former(("cluster_m", "cluster_n"), _CLUSTERS),
        "staged": _renamed("epilogue_smem"),
        "band": _renamed("raster_group"),
        "partials": _renamed("workspace_dtype"),
    },
    "reduction": {"partials": _renamed("workspace_dtype")},
    "scatter": {"way": _renamed("algorithm")},
}
"""The former fields of each scheduler, by name."""


def present(scheduler: str, name: str, value: Setting) -> Mapping[str, Setting]:
    """Return a setting of a scheduler with present names; itself if these are present ones."""
    former = FORMER.get(scheduler, {}).get(name)
    found = None if former is None else former.now(value)
    return {name: value} if found is None else found


def is_former(name: str, value: Setting) -> bool:
    """Return whether some scheduler has had a setting with another name or value."""
    return any(present(scheduler, name, value) != {name: value} for scheduler in FORMER)


def all_present(scheduler: str, settings: Mapping[str, Setting]) -> Mapping[str, Setting]:
    """Return settings of a scheduler with present names."""
    if scheduler not in FORMER:
        return settings
    found: dict[str, Setting] = {}
    for name, value in settings.items():
        found.update(present(scheduler, name, value))
    return found
