"""Why a fusion was partitioned this way: as data, as text, as a page."""
