"""Evaluation of fusions in double precision, expected errors, and the verdict on results."""
