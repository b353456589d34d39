"""The one exception that means: the user can mend this."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

LONGEST = 800
"""Characters of a sentence."""


class OmrlError(Exception):
    """Bad input. The message is one sentence that names what is wrong and where; the command line exits with code 2."""

    def __init__(self, sentence: str) -> None:
        # Names in it may come from damaged or hostile files: a line break or a terminal code stays visible as such, and
        # what is longer than anyone reads loses its middle.
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in sentence)
        if len(shown) > LONGEST:
            shown = f"{shown[: LONGEST * 3 // 4]} ... {shown[-LONGEST // 4 :]}"
        super().__init__(shown)


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Imports that one of omrl's extras brings: one that is missing is named, and how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise OmrlError(f"{what} needs {package}: pip install 'omrl[{extra}]'.") from error


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that is nearest to a mistyped one, if one is near."""
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
