"""Operations that are made of others when they are called."""
