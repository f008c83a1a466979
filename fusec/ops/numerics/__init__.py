"""Numbers that declarations need: bounds of errors, random bits, special functions."""
