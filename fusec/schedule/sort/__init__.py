"""Sorts and top-k along one axis."""
