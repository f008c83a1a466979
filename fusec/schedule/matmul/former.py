"""Former names of the fields of GEMM schedules."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.schedule.former import Former

FORMER: Mapping[str, Former] = {
    "kernel": Former(("kernel",), {"vector": ("gemv",)}),
    "cluster": Former(("cluster_k",)),
    "split_method": Former(
        ("split_method",), {"two_kernel": ("two_pass",), "ranges": ("stream_k",)}
    ),
    "multicast": Former(
        ("cluster_m", "cluster_n"),
        {
            "none": (1, 1), "b": (2, 1), "a": (1, 2), "both": (2, 2),
            "4x1": (4, 1), "1x4": (1, 4), "4x2": (4, 2), "2x4": (2, 4),
        },
    ),
    "staged": Former(("epilogue_smem",)),
    "band": Former(("raster_group",)),
    "partials": Former(("workspace_dtype",)),
}  # fmt: skip
