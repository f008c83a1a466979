"""Operations that are composed of others when they are called."""
