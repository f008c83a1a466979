"""Transposes through tiles in shared memory."""
