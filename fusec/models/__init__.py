"""Import of models exported by PyTorch, without PyTorch, as fusion files with weights."""
