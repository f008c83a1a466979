"""Benchmarks and large test runs."""
