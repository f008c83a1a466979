"""Partition a fusion over ranks and streams into the fusion that one rank runs."""
