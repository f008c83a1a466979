"""The buffer in which kernels record out-of-bounds indices."""

INDEX_ERRORS = "index.errors"
"""The name of that buffer: it holds the number of the first check that failed, and the index."""
