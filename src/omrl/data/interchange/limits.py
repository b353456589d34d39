"""How much a file may unpack to: a few kilobytes can claim to hold more than any memory does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from omrl.errors import OmrlError

# Logs seldom compress a hundredfold. Where little is claimed it does not matter: flags that are all 0 do.
RATIO = 100
ALWAYS = 256 * 1024**2


@dataclass(frozen=True)
class Limit:
    """Bytes that a file's arrays may take in memory."""

    max_gb: float | None

    def bytes_of(self, path: Path) -> int:
        """The most that is read of this file."""
        return max(RATIO * path.stat().st_size, ALWAYS) if self.max_gb is None else int(self.max_gb * 1e9)

    def check(self, path: Path, claimed: int) -> None:
        """Refuse before memory is taken."""
        claimed = min(claimed, 2**63)  # of a number without end no share can be told
        if claimed > self.bytes_of(path):
            size = path.stat().st_size
            raise OmrlError(
                f"{path} is a file of {_amount(size)} that unpacks to {_amount(claimed)}; if that is right, say "
                f"--max-gb {claimed / 1e9 + 0.01:.2f}"
            )


def _amount(size: int) -> str:
    for unit, bytes_of in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= bytes_of:
            return f"{size / bytes_of:,.1f} {unit}"
    return f"{size} bytes"
