"""Compiled folders: written, read back and checked."""
