"""The one exception that means: the user can mend this."""

from __future__ import annotations


class OmrlError(Exception):
    """Bad input. The message is one sentence that names what is wrong and where; the command line exits with code 2."""
