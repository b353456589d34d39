"""Read HDF5 files once, to see whether that comes to an end.

A program of its own, which needs nothing of omrl: `python -P hdf5_trial.py SECONDS`, with a line `BYTES PATH` for every
file on its input. It prints each path before it reads it, and is ended by the system if all of them take longer. What
HDF5 itself finds wrong is left for the import to say.
"""

import math
import signal
import sys
from pathlib import Path

import h5py

BLOCK = 32 * 1024**2


def claimed(dataset: h5py.Dataset) -> int:
    """Bytes that reading takes: of all rows, or of one chunk if that is more."""
    item = max(int(dataset.dtype.itemsize), 1)
    return item * max(int(dataset.size or 0), math.prod(dataset.chunks or (1,)))


def read(path: str, limit: int) -> None:
    """Everything that is in the file, as far as the import would take it."""
    with h5py.File(path, "r") as file:
        dict(file.attrs)
        found: list[h5py.Dataset] = []
        file.visititems(lambda _, item: found.append(item) if isinstance(item, h5py.Dataset) else None)
        for dataset in found:
            if not dataset.shape or dataset.is_virtual or dataset.external or claimed(dataset) > limit:
                continue
            rows = max(1, BLOCK * dataset.shape[0] // max(claimed(dataset), 1))
            if dataset.dtype.kind == "O":  # texts, which may all be one long one of the file
                rows = min(rows, max(1, limit // max(Path(path).stat().st_size, 1)))
            for start in range(0, dataset.shape[0], rows):
                dataset[start : start + rows]


def main() -> None:
    """Every file of the input."""
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))  # nobody catches it, so that it ends HDF5 too
    for line in sys.stdin.read().splitlines():
        limit, _, path = line.partition(" ")
        print(path, flush=True)
        try:
            read(path, int(limit))
        except Exception:
            continue


if __name__ == "__main__":
    main()
