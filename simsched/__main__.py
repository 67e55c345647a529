"""``python -m simsched``: the command line."""

from simsched.cli import main

main()
