"""The statements of scatters."""
