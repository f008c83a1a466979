"""Attention's forward pass: one block per tile of queries."""
