"""Evidence: what the library says, held against what others published or measured."""
