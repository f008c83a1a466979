"""The intermediate representation: dtypes, dims, operations, graphs, their text and meaning."""
