"""Edit distances between words, for suggestions."""

from __future__ import annotations


def edits(one: str, other: str) -> int:
    """Return the edit distance by insertion, deletion, substitution and adjacent transposition."""
    rows = [list(range(len(other) + 1))]
    for i, left in enumerate(one, 1):
        row = [i]
        for j, right in enumerate(other, 1):
            best = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (left != right))
            if i > 1 and j > 1 and (left, one[i - 2]) == (other[j - 2], right):
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]
