"""Decoding attention: few queries, whose keys several blocks share."""
