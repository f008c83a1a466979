"""The lowering of a plan's values to statements and expressions."""
