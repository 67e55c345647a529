"""Data classes to JSON and back, checked, and described as JSON Schema: all three from their type hints."""
