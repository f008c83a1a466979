"""Calls and lines as PyTorch, NumPy and Python write them, put into fusec's words."""
