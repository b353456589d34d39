"""Damage, by a seed: bytes, words, values of JSON, cells of tables, arrays of array files. Lengths are kept right where
that gets the damage further into what reads it.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

Random = random.Random
Arrays = dict[str, np.ndarray]

DEEP = "deep-" * 5
ROWS = 10_000
ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3.5, -0.0, 1e308, -1e308, float("nan"), float("inf"), -float("inf")),
    *(10**6, 10**9, 10**20, 2**31, 2**63, 2**64, -(2**63), 10**400, 1e-300),
    *("", " ", "x", "x" * 5000, "../../..", "/etc/passwd", "payload:X", "os:system", "NaN", "1", "=1+1", "\u0000"),
    *("é\u2028\u202e", "<script>alert(1)</script>", "%s{0}{x}", "[red]x[/blue]", "\ud800", "mixed", "focal"),
    *([], {}, [[]], [None], {"": 0}, {"x": {"x": {}}}, [1e400], [0] * 3000, DEEP, [10**9] * 3, ["x"], ["..", "."]),
]
WORDS = [
    *("0", "-1", "1e308", "-1e400", "nan", "inf", "1e20", "9" * 400, "99999999999999999999", "0.5", "true", "null"),
    *(
        '"x"',
        "",
        ",",
        "\n",
        "\r",
        '"',
        "'",
        "=SUM(1)",
        "@x",
        "-",
        "[",
        "}",
        "\u0000",
        "é",
        "\ufeff",
        "x" * 300,
        "1_000",
    ),
    *("0x10", "1,5", "2020-01-01", "\t", "NaT", "None", "[[", "step-0000003.safetensors", "#", "[red]"),
]


def damaged(data: bytes, form: str, rng: Random) -> bytes:
    """One to three changes; most as the form of the file allows, some to its bytes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        ways = FORMS[form]
        way = rng.choice(ways) if ways and rng.random() < 0.7 else rng.choice(BYTES)
        try:
            data = way(data, rng)
        except Exception:  # it is too damaged to be changed as what it was
            data = rng.choice(BYTES)(data, rng)
    return data


# -- bytes and words ---------------------------------------------------------------------------------------------------


def _part(data: bytes, rng: Random, most: int = 400) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.randrange(1, most))


def flip(data: bytes, rng: Random) -> bytes:
    if not data:
        return b"\x00"
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def cut(data: bytes, rng: Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def drop(data: bytes, rng: Random) -> bytes:
    start, end = _part(data, rng)
    return data[:start] + data[end:]


def double(data: bytes, rng: Random) -> bytes:
    start, end = _part(data, rng)
    return data[:end] + data[start:]


def noise(data: bytes, rng: Random) -> bytes:
    start, end = _part(data, rng, 40)
    return data[:start] + rng.randbytes(rng.randrange(1, 40)) + data[end:]


def zeros(data: bytes, rng: Random) -> bytes:
    start, end = _part(data, rng)
    return data[:start] + bytes(end - start) + data[end:]


def empty(data: bytes, rng: Random) -> bytes:
    return rng.choice((b"", b"\n", b"\x00", b"{}", b"[]", b"null", b"0"))


def large_number(data: bytes, rng: Random) -> bytes:
    """Where a length may stand."""
    start, _ = _part(data, rng)
    size = rng.choice((1, 2, 4, 8))
    value = rng.choice((0, 1, 0x7F, 0xFF, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**40)) % 2 ** (8 * size)
    return data[:start] + value.to_bytes(size, rng.choice(("little", "big"))) + data[start + size :]


BYTES: list[Callable[[bytes, Random], bytes]] = [flip, flip, cut, drop, double, noise, zeros, empty, large_number]


def other_encoding(data: bytes, rng: Random) -> bytes:
    return data.decode(errors="replace").encode(rng.choice(("utf-16", "utf-8-sig", "utf-32")))


def words(data: bytes, rng: Random) -> bytes:
    """Another word or number in the place of one."""
    text = data.decode("utf-8", errors="surrogateescape")
    found = list(re.finditer(r"[\w.+-]+", text))
    place = rng.choice(found)
    return (text[: place.start()] + rng.choice(WORDS) + text[place.end() :]).encode("utf-8", errors="surrogateescape")


def lines(data: bytes, rng: Random) -> bytes:
    rows = data.splitlines(keepends=True)
    i, j = rng.randrange(len(rows)), rng.randrange(len(rows))
    way = rng.randrange(4)
    if way == 0:
        rows[i], rows[j] = rows[j], rows[i]
    elif way == 1:
        rows.insert(j, rows[i])
    elif way == 2:
        del rows[i]
    else:
        rows[i] = rows[i].replace(b"\n", rng.choice((b"\r", b"\r\n", b"", b"\n\n")))
    return b"".join(rows)


TEXT = [words, words, words, lines, other_encoding]


# -- JSON --------------------------------------------------------------------------------------------------------------


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += _places(item, (*path, key))
    return found


def changed_value(value: Any, rng: Random) -> Any:
    """A copy of what JSON holds with one thing changed."""
    value = json.loads(json.dumps(value))
    places = _places(value)
    if not places or rng.random() < 0.02:
        return rng.choice(ODD)
    *way, last = rng.choice(places)
    parent = value
    for key in way:
        parent = parent[key]
    old, how = parent[last], rng.randrange(10)
    if how == 0:
        del parent[last]
    elif how == 1 and isinstance(parent, dict):
        parent[rng.choice(("x", "", f"{last} ", str(last).upper(), "schema"))] = parent.pop(last)
    elif how == 2 and isinstance(parent, list):
        parent.insert(rng.randrange(len(parent) + 1), rng.choice((old, rng.choice(ODD))))
    elif how == 3:
        parent[last] = [old]
    elif how == 4 and isinstance(old, int | float) and not isinstance(old, bool):
        parent[last] = rng.choice((old + 1, -old, old * 1000, float(old), str(old), old * 1e300, old - 1))
    elif how == 5:
        *_, other = rng.choice(places)
        if isinstance(parent, dict):
            parent[str(other)] = old
        else:
            parent.append(old)
    else:
        parent[last] = rng.choice(ODD)
    return value


def json_text(value: Any) -> bytes:
    """As JSON, with brackets in brackets where the value says so."""
    return json.dumps(value).replace(f'"{DEEP}"', "[" * 200_000 + "]" * 200_000).encode(errors="surrogatepass")


def values(data: bytes, rng: Random) -> bytes:
    return json_text(changed_value(json.loads(data), rng))


def twice(data: bytes, rng: Random) -> bytes:
    """A key that is there twice."""
    table = json.loads(data)
    key = rng.choice(list(table))
    return json.dumps(table)[:-1].encode() + b", " + json.dumps({key: rng.choice(ODD[:20])})[1:].encode()


# -- tables ------------------------------------------------------------------------------------------------------------


def cells(data: bytes, rng: Random) -> bytes:
    rows = list(csv.reader(io.StringIO(data.decode())))
    i, way = rng.randrange(len(rows)), rng.randrange(6)
    if way < 3:
        rows[i][rng.randrange(len(rows[i]))] = rng.choice(WORDS)
    elif way == 3:
        column = rng.randrange(len(rows[0]))
        rows = [[cell for j, cell in enumerate(row) if j != column] for row in rows]
    elif way == 4:
        column, word = rng.randrange(len(rows[0])), rng.choice(WORDS)
        for row in rows[rng.randrange(2) :]:
            row[column] = word
    else:
        rows[i] = rows[i] + [rng.choice(WORDS)] if rng.random() < 0.5 else rows[i][:-1]
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    return written.getvalue().encode(errors="surrogatepass")


# -- arrays ------------------------------------------------------------------------------------------------------------


def changed_array(array: np.ndarray, rng: Random) -> np.ndarray:
    way, flat = rng.randrange(9), array.copy()
    if way == 0:
        return array[:0]
    if way == 1:
        return array[:-1] if array.ndim else array[None]
    if way == 2:
        return np.concatenate([array, array]) if array.ndim else array
    if way == 3:
        return array.astype(rng.choice(("f8", "f4", "f2", "i4", "i8", "u1", "?", "i2", "u4")))
    if way == 4:
        return array[..., None] if rng.random() < 0.5 else array.reshape(-1)
    if way == 5:
        return array.T.copy()
    if way == 6:
        return np.zeros(rng.choice(((), (1,), (0, 3), (1, 1, 1, 1), (7, 5))), array.dtype)
    if not flat.size:
        return flat
    place = rng.randrange(flat.size)
    odd = rng.choice((0.0, -1.0, 1e30, np.nan, np.inf, -np.inf, 255.0, 1e9))
    with np.errstate(all="ignore"):
        if way == 7:
            flat.reshape(-1)[place] = np.array(odd).astype(flat.dtype)
        else:
            flat[...] = np.array(odd).astype(flat.dtype)
    return flat


def changed_arrays(arrays: Arrays, rng: Random) -> Arrays:
    """A copy with one array changed, gone, renamed, or in another's place."""
    names = list(arrays)
    name, other, way = rng.choice(names), rng.choice(names), rng.randrange(8)
    found = dict(arrays)
    if way == 0:
        del found[name]
    elif way == 1:
        found[rng.choice(("x", "", f"{name}.x", "../x", name.upper()))] = found.pop(name)
    elif way == 2:
        found[name], found[other] = found[other], found[name]
    else:
        found[name] = changed_array(arrays[name], rng)
    return found


def tensors(data: bytes, rng: Random) -> bytes:
    from safetensors.numpy import load, save

    size = int.from_bytes(data[:8], "little")
    notes = json.loads(data[8 : 8 + size]).get("__metadata__")
    # Sorted: safetensors has another order in every process, and a seed is to give the same file again.
    found = dict(sorted(load(data).items()))
    arrays = {name: np.ascontiguousarray(array) for name, array in changed_arrays(found, rng).items()}
    return save(arrays, notes)


def tensor_header(data: bytes, rng: Random) -> bytes:
    size = int.from_bytes(data[:8], "little")
    header = json_text(changed_value(json.loads(data[8 : 8 + size]), rng))
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


def tensor_notes(data: bytes, rng: Random) -> bytes:
    """What stands beside the tensors, which may be JSON itself."""
    from safetensors.numpy import load, save

    size = int.from_bytes(data[:8], "little")
    notes = json.loads(data[8 : 8 + size])["__metadata__"]
    key = rng.choice(sorted(notes))
    try:
        notes[key] = json_text(changed_value(json.loads(notes[key]), rng)).decode()
    except ValueError:
        notes[key] = str(rng.choice(WORDS))
    return save(load(data), notes)


def _packed(members: dict[str, bytes], rng: Random) -> bytes:
    written = io.BytesIO()
    way = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, way)  # without the time of day
    return written.getvalue()


def zipped_arrays(data: bytes, rng: Random) -> bytes:
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    written = io.BytesIO()
    np.savez(written, **changed_arrays(arrays, rng))
    return written.getvalue()


def zipped_member(data: bytes, rng: Random) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    members[name] = rng.choice((array_header, flip, cut, noise))(members[name], rng)
    return _packed(members, rng)


def zipped_words(data: bytes, rng: Random) -> bytes:
    """A member that is one text of JSON."""
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    name = rng.choice([name for name, array in arrays.items() if array.dtype.kind == "U" and array.ndim == 0])
    arrays[name] = np.array(json_text(changed_value(json.loads(str(arrays[name])), rng)).decode())
    written = io.BytesIO()
    np.savez(written, **arrays)
    return written.getvalue()


def array_header(data: bytes, rng: Random) -> bytes:
    """What a file of one array claims to be."""
    size = int.from_bytes(data[8:10], "little")
    header = data[10 : 10 + size].decode("latin1")
    odd = (
        ("shape", rng.choice(("()", "(0,)", "(10**9,)", "(1000000000,)", "(-1,)", "(3, 0)", "(99999, 99999)", "7"))),
        ("descr", rng.choice(("'<f8'", "'|O'", "'<U100000'", "'>i2'", "'<M8[s]'", "[('a', '<f4')]", "'<f999'", "3"))),
        ("fortran_order", rng.choice(("True", "1", "None"))),
    )
    name, word = rng.choice(odd)
    header = re.sub(rf"('{name}': )(\([^)]*\)|'[^']*'|\w+)", lambda found: found[1] + word, header).rstrip()
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return data[:8] + len(header).to_bytes(2, "little") + header.encode("latin1") + data[10 + size :]


def one_array(data: bytes, rng: Random) -> bytes:
    written = io.BytesIO()
    np.save(written, changed_array(np.load(io.BytesIO(data), allow_pickle=False), rng))
    return written.getvalue()


def groups(data: bytes, rng: Random) -> bytes:
    """Arrays and attributes of an HDF5 file."""
    import h5py

    content = io.BytesIO(data)
    with h5py.File(content, "r+") as file:
        arrays: list[str] = []
        file.visititems(lambda name, item: arrays.append(name) if isinstance(item, h5py.Dataset) else None)
        name, way = rng.choice(arrays), rng.randrange(5)
        if way == 0 and len(file.attrs):
            key = rng.choice(list(file.attrs))
            odd = rng.choice(("x", json_text(changed_value(json.loads(file.attrs[key]), rng)).decode()))
            del file.attrs[key]
            file.attrs[key] = odd
        elif way == 1:
            del file[name]
        elif way == 2:
            rows = rng.choice((10**3, 10**7, 10**9))
            del file[name]
            file.create_dataset(name, (rows,), "f4", chunks=(1000,), compression="gzip")
        elif way == 3:
            del file[name]
            file[name] = rng.choice((h5py.SoftLink("/nowhere"), h5py.ExternalLink("/etc/passwd", "/x")))
        else:
            # Of one that claims to be large already the beginning: nobody is to write gigabytes here.
            there = file[name][:ROWS] if file[name].shape else file[name][()]
            del file[name]
            file[name] = changed_array(there, rng)
    return content.getvalue()


def parquet_columns(data: bytes, rng: Random) -> bytes:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(io.BytesIO(data))
    name = rng.choice(table.column_names)
    place, column = table.column_names.index(name), table.column(name).to_numpy()
    odd = rng.choice(
        (
            lambda: pyarrow.array([rng.choice(("x", None, "=1", "é" * 50)) for _ in column]),
            lambda: pyarrow.array([None] * len(column)),
            lambda: pyarrow.array([[1.0] * rng.randrange(3) for _ in column]),
            lambda: pyarrow.array(np.full(len(column), rng.choice((np.nan, np.inf, 1e308, -1.0)))),
            lambda: pyarrow.array(column.astype("datetime64[s]") if column.dtype.kind == "i" else column),
            lambda: pyarrow.array(np.repeat(column[:1], len(column))),
        )
    )()
    table = table.remove_column(place) if rng.random() < 0.2 else table.set_column(place, name, odd)
    written = io.BytesIO()
    pyarrow.parquet.write_table(table, written)
    return written.getvalue()


FORMS: dict[str, list[Callable[[bytes, Random], bytes]]] = {
    "text": TEXT,
    "json": [values, values, values, values, twice, words, other_encoding],
    "toml": TEXT,
    "csv": [cells, cells, cells, *TEXT],
    "tensors": [tensors, tensors, tensor_header],
    "noted tensors": [tensors, tensors, tensor_header, tensor_notes],
    "npz": [zipped_arrays, zipped_arrays, zipped_member],
    "npz with words": [zipped_arrays, zipped_words, zipped_member],
    "npy": [one_array, array_header],
    "objects": [array_header],
    "hdf5": [groups],
    "parquet": [parquet_columns],
}
