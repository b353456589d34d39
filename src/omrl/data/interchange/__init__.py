"""Meta-datasets from and to other formats, one file per format."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from omrl.commands.data import Import
from omrl.data.dataset import MetaDataset
from omrl.errors import OmrlError
from omrl.storage import folders

MINARI_EXPORT = folders.Kind(
    "Minari export",
    "namespace_metadata.json",
    (
        *("namespace_metadata.json", "*/data/*.hdf5", "*/data/metadata.json"),
        # Minari's own folder, from which the tasks are moved when all are written.
        *("staging/*/namespace_metadata.json", "staging/*/*/namespace_metadata.json"),
        *("staging/*/*/*/data/*.hdf5", "staging/*/*/*/data/metadata.json"),
    ),
)


def read(args: Import) -> MetaDataset:
    """Import `args.src` into the new meta-dataset `args.dir`."""
    if not args.src.exists():
        raise OmrlError(f"{args.src} does not exist")
    folders.keep_apart(args.dir, args.src)
    dataset: MetaDataset = import_module(f"{__name__}.{args.format}").read_dataset(args)
    return dataset


def write(dataset: MetaDataset, dst: Path, format: str, force: bool = False) -> None:
    """Export a whole meta-dataset to `dst`."""
    if dataset.is_view:
        raise OmrlError("only a whole meta-dataset can be exported; save this view first")
    target = folders.place(dst)
    folders.keep_apart(target, folder_of(dataset))
    import_module(f"{__name__}.{format}").write_dataset(dataset, target, force)


def folder_of(dataset: MetaDataset) -> Path:
    """Where a dataset lies; another process is to read it there."""
    if dataset.path is None:
        raise OmrlError("only a meta-dataset on disk can be exported; save this one first")
    return dataset.path


def size_of(dataset: MetaDataset) -> int:
    """About how many bytes an export takes."""
    return sum(entry.bytes for entry in dataset.manifest.tasks)


def refuse_flags(args: Import) -> None:
    """For sources that describe themselves: a flag that would be ignored is a mistake."""
    if args.described:
        raise OmrlError(f"{args.src} was exported by omrl and describes itself; leave out {', '.join(args.described)}")
