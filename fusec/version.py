"""The version of fusec, and when this process began to load it."""

import time

__version__ = "0.2.0"
LOADED_NS = time.time_ns()
"""Start time of this process: files changed later may differ from what it runs."""
