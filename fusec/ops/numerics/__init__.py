"""Numerics for declarations: error bounds, random bits, special functions."""
