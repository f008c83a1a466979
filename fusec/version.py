"""The version of fusec."""

__version__ = "0.2.0"
