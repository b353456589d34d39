"""What all tests share: one thread for numerical libraries, in this process and in those that tests start.

Tests run side by side on few cores, where threads of small matrix products only wait for each other.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"
