"""Section."""

from hwbackend.contact.sections.item import Item


def launch_items() -> list[Item]:
    """Return the items."""
    return []
