"""Why a fusion was cut as it was: as data, as text, as a page."""
