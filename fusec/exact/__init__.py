"""The least traffic that any segmentation could have, proven by search."""
