"""The cost model of GEMMs."""
