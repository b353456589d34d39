"""Parquet tables; a column of lists of one length is an array of several dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from omrl.commands.data import Import
from omrl.data.dataset import MetaDataset
from omrl.data.interchange.flat import Format, read_tables, texts
from omrl.data.interchange.limits import Limit
from omrl.data.interchange.survey import Column
from omrl.errors import OmrlError, needs_extra

with needs_extra("parquet", "This format"):
    import pyarrow
    import pyarrow.parquet
    from pyarrow import types


def read_dataset(args: Import) -> MetaDataset:
    """Import parquet files."""
    return read_tables(args, Format((".parquet",), _names, partial(_read, Limit(args.max_gb))))


def _names(path: Path) -> list[str]:
    return [str(name) for name in _open(path).schema_arrow.names]


def _open(path: Path) -> Any:
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise OmrlError(f"{path} cannot be read as parquet: {error}") from error


def _claimed(file: Any, names: Sequence[str]) -> int:
    """Bytes of the values of some columns; those of a text may all be the same one of the file."""
    about = file.metadata
    found = 0
    for group in (about.row_group(i) for i in range(about.num_row_groups)):
        for column in (group.column(i) for i in range(group.num_columns)):
            if column.path_in_schema.split(".")[0] in names:
                found += max(8 * column.num_values, column.total_uncompressed_size)
    return found


def _read(limit: Limit, path: Path, names: Sequence[str]) -> dict[str, Column]:
    try:
        file = _open(path)
        limit.check(path, _claimed(file, names))
        table = file.read(columns=list(names))
        return {name: _column(table.column(name).combine_chunks(), name, path) for name in names}
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise OmrlError(f"{path} cannot be read as parquet: {error}") from error


def _column(column: Any, name: str, path: Path) -> Column:
    kind = column.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise OmrlError(f"{path}: column {name!r}, row {row}: a whole list is missing; write its values as nulls")
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        wrong = lengths != (lengths[0] if len(lengths) else 0)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise OmrlError(f"{path}: column {name!r}, row {row}: {lengths[row]} values where row 0 has {lengths[0]}")
        return _column(column.flatten(), name, path).reshape(len(column), -1)
    if types.is_dictionary(kind):
        return _column(column.dictionary_decode(), name, path)
    if types.is_string(kind) or types.is_large_string(kind):
        return texts([text or "" for text in column.to_pylist()], name, path)
    if types.is_decimal(kind) or (types.is_boolean(kind) and column.null_count):
        column = column.cast("float64")
    values: Column = column.to_numpy(zero_copy_only=False)
    return values
