"""`python -m omrl`."""

from __future__ import annotations

import sys

from omrl_command import main

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # `python -m` puts the working directory before all others, and a file there is nobody's library.
        del sys.path[0]
    main()
