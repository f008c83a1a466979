"""The views of the templates of sorts and top-k."""
