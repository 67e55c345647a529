"""Section."""

from hwbackend.contact.sections.item import Item


def compile_items() -> list[Item]:
    """Return the items."""
    return []
