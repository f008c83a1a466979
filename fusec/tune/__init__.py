"""Measures schedules: finds the fastest in a segment's space on the local GPU."""
