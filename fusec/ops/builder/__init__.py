"""Construction of graphs: calls are checked, completed and typed."""
