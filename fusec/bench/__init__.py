"""Benchmarks: contenders on the same buffers, one timer, the limit of the memory beside them."""
