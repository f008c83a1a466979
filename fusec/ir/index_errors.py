"""Where kernels note an index that is out of bounds."""

INDEX_ERRORS = "index.errors"
"""The buffer of what checks note: the number of the first one that failed, and the index."""
