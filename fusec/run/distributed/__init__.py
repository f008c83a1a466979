"""The ranks of a run: identity, rendezvous, communication and failure handling."""
