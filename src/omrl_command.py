"""Where the script `omrl` begins: a module beside the package, so that all of its imports can be interrupted kindly."""

from __future__ import annotations

import sys

# How the system says that it had no memory to load a library with.
NOT_MAPPED = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")


def main() -> None:
    """Answer; whoever interrupts while modules are still being imported gets no traceback either."""
    try:
        from omrl.cli import main as answer

        answer()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)
    except (ImportError, SystemError, MemoryError) as error:
        if not lacks_memory(error):
            raise
        print("error: There is not enough memory to load the libraries that omrl needs.", file=sys.stderr)
        sys.exit(2)


def lacks_memory(error: BaseException | None) -> bool:
    """Whether something could not be loaded for want of memory; libraries hide it behind errors of their own."""
    while error is not None:
        # Python's own, where it had no memory for saying what went wrong.
        no_words = isinstance(error, SystemError) and "exception" in str(error)
        if isinstance(error, MemoryError) or no_words or any(words in str(error) for words in NOT_MAPPED):
            return True
        error = error.__cause__ or error.__context__
    return False
