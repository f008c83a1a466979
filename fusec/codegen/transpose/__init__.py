"""The views of the transpose templates."""
