"""Kinds of findings."""


def kind_of(broken: str) -> str:
    """The finding without its numbers and names."""
    words = ["…" if any(character.isdigit() for character in word) else word for word in broken.split()]
    return " ".join(words)[:140]
