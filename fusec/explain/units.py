"""Numbers for people: decimal units, three digits."""

from __future__ import annotations


def bytes_text(size: float) -> str:
    """Return a number of bytes: `0 B`, `57.3 kB`, `352 MB`."""
    return _scaled(size, ("B", "kB", "MB", "GB", "TB", "PB"))


def time_text(seconds: float) -> str:
    """Return a time in microseconds below a millisecond: `61.2 us`, `1.25 ms`."""
    return _scaled(seconds * 1e6, ("us", "ms"), "s")


def share_text(part: float, whole: float) -> str:
    """Return a fraction in percent: `97 %`, `<1 %`; 0 of 0 is 100 %."""
    if not whole:
        return "100 %"
    percent = 100 * part / whole
    return "<1 %" if 0 < percent < 0.5 else f"{percent:.0f} %"


def _scaled(amount: float, units: tuple[str, ...], last: str = "") -> str:
    every = (*units, last) if last else units
    for unit in every[:-1]:
        if amount < 999.5:
            return f"{_digits(amount)} {unit}"
        amount /= 1000
    return f"{_digits(amount)} {every[-1]}"


def _digits(amount: float) -> str:
    if amount == int(amount) and amount < 1000:
        return str(int(amount))
    return f"{amount:.{0 if amount >= 99.95 else 1 if amount >= 9.995 else 2}f}"
