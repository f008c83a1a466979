"""Decode attention: few queries, with keys split over several blocks."""
