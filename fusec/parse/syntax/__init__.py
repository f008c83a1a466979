"""Op lines, types and sizes as trees: syntax only."""
