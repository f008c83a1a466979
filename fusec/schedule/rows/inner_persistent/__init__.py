"""Rows that stay on chip between their phases."""
