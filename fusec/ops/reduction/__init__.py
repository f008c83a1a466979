"""Operations along dims: reductions, scans and sorts."""
