"""`python -m fusec`."""

from fusec.cli import main

main()
