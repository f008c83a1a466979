"""Calls and lines in the syntax of PyTorch, NumPy and Python, rewritten for fusec."""
