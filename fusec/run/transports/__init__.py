"""How memory goes between ranks: one protocol, and what carries it."""
