"""Trees of op lines, types and sizes: only syntax."""
