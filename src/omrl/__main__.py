"""`python -m omrl` is `omrl`."""

from omrl.cli import main

main()
