"""Rows and columns reduced in one reading."""
