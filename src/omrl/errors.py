"""The one exception that means: the user can mend this."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OmrlError(Exception):
    """Bad input. The message is one sentence that names what is wrong and where; the command line exits with code 2."""

    def __init__(self, sentence: str) -> None:
        # Names in it may come from damaged or hostile files: a line break or a terminal code stays visible as such.
        super().__init__("".join(c if c.isprintable() else ascii(c)[1:-1] for c in sentence))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that is nearest to a mistyped one, if one is near."""
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
