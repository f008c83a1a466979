"""Benchmarks: contenders on the same buffers with one timer, compared with the memory roofline."""
