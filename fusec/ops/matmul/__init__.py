"""GEMMs and other contractions."""
