"""The cost model of matrix products."""
