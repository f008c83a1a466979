"""Fits the coefficients of the cost model to recorded times."""
