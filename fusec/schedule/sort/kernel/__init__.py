"""The statements of sorts and of top-k."""
