"""Attention's forward pass: one block for a tile of queries."""
