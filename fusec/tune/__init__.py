"""Measuring schedules: which of a segment's space is the fastest on the GPU at hand."""
