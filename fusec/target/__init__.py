"""The properties of GPUs, as data."""

from fusec.target.table import TARGETS, Target, find, nearest, nearest_arch, own_file

__all__ = ["TARGETS", "Target", "find", "nearest", "nearest_arch", "own_file"]
