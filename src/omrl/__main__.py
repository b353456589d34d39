"""`omrl`, and `python -m omrl`."""

from __future__ import annotations

import sys


def main() -> None:
    """Answer; whoever interrupts while modules are still being imported gets no traceback either."""
    try:
        from omrl.cli import main as answer

        answer()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
