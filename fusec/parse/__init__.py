"""Front ends: YAML files and, in `fusec.parse.dsl`, Python scripts."""

from fusec.parse.reader import read_file, read_text

__all__ = ["read_file", "read_text"]
