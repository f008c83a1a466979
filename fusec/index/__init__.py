"""Index maps: where the elements of every value sit on a segment's iteration domain."""
