"""Models exported by PyTorch, read without PyTorch and written as fusion files with weights."""
