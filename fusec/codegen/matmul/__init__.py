"""The views of the matrix product templates."""
