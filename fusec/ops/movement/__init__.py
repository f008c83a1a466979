"""Operations that move elements, and how they map coordinates."""
