"""Operations of the link, one module each."""
