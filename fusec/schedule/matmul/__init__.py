"""GEMMs and their epilogues."""
