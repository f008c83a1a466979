"""From a fusion that is divided over ranks and streams to the fusion that one rank runs."""

from fusec.shard.partition import partition

__all__ = ["partition"]
