"""The host program as data."""
