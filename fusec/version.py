"""The version of fusec."""

__version__ = "0.1.0"
