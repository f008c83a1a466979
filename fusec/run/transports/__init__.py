"""Communication between the memories of ranks: one protocol, and its implementations."""
