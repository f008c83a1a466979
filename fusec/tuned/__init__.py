"""Measured schedules: one text file per target, looked up by the structure of a segment.

The files in this folder come with fusec; `fusec tune` writes the user's.
"""

from fusec.tuned.entry import Entry, Tuned
from fusec.tuned.key import Key, key_of
from fusec.tuned.store import Found, Store, find, store_for
from fusec.user_files import user_file

__all__ = ["Entry", "Found", "Key", "Store", "Tuned", "find", "key_of", "store_for", "user_file"]
