"""What a GPU can do, as data."""

from fusec.target.table import TARGETS, Target, find

__all__ = ["TARGETS", "Target", "find"]
