"""Names of PyTorch, ATen, NumPy, JAX and nvFuser, with their equivalents in fusec.

This is the only table: files, scripts, `fusec ops`, completion and importers of graphs use it.
"""

from __future__ import annotations

from fusec.ops.frameworks.entry import Entry as Entry
from fusec.ops.frameworks.entry import Parameter as Parameter
from fusec.ops.frameworks.find import aliases as aliases
from fusec.ops.frameworks.find import entries as entries
from fusec.ops.frameworks.find import find as find
from fusec.ops.frameworks.find import find_bare as find_bare
from fusec.ops.frameworks.find import find_dotted as find_dotted
from fusec.ops.frameworks.find import method_entry as method_entry
from fusec.ops.frameworks.find import of_operation as of_operation
