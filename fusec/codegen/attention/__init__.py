"""The views of the attention templates."""
