"""The views of the templates of rows and columns."""
