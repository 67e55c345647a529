"""The simulator held against one H100: ``python -m validation.h100`` prints every table."""
