"""Index maps: the positions of every value's elements on a segment's iteration domain."""
