"""Files that claim more than they hold, files that HDF5 never returns from, and disks that are full."""

import io
import os
import resource
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from example_logs import assert_same_dataset, make_dataset, make_task, tree

from omrl.commands.data import Import
from omrl.data import MetaDataset, interchange
from omrl.data.interchange import apart, limits
from omrl.data.interchange.npz import shape_and_type
from omrl.errors import OmrlError

FLAGS = {"action_low": (-2.0,), "action_high": (3.0,), "varies": "reward", "test_tasks": ()}
# Everything that importing brings with it takes less; the smallest of the bombs claims more.
MEMORY = 1024**3


def load(kind, path, **flags):
    return interchange.read(Import(src=path, dir=path.parent / "out", format=kind, **{**FLAGS, **flags}))


def hdf5_bomb(path, rows=1_000_000_000):
    """Chunks that were never written are a fill value, and take no room in the file."""
    with h5py.File(path, "w") as file:
        for name in ("task", "observations", "actions", "rewards", "terminals", "timeouts"):
            file.create_dataset(name, (rows,), "f4", chunks=(100_000,), compression="gzip")


def zipped_bomb(path, rows=400_000_000):
    """A deflated array of zeros, which is a thousandth of its size."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("observations.npy", "w") as file,
    ):
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows,)}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(400):
            file.write(bytes(4 * rows // 400))
    small = {"task": np.zeros(1), "actions": np.zeros(1), "rewards": np.zeros(1), "terminals": np.zeros(1)}
    with zipfile.ZipFile(path, "a") as archive:
        for name, values in (small | {"timeouts": np.zeros(1)}).items():
            with archive.open(f"{name}.npy", "w") as file:
                np.save(file, values)


def parquet_bomb(path, rows=50_000_000):
    """A value that repeats is written once."""
    names = ("task", "observations", "actions", "rewards", "terminals", "timeouts")
    schema = pyarrow.schema([(name, pyarrow.float32()) for name in names])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        block = pyarrow.table({name: np.zeros(rows // 20, np.float32) for name in names}, schema=schema)
        for _ in range(20):
            writer.write_table(block, row_group_size=rows // 20)


BOMBS = {"hdf5": hdf5_bomb, "npz": zipped_bomb, "parquet": parquet_bomb}


@pytest.mark.parametrize("kind", BOMBS)
def test_what_unpacks_to_too_much_is_refused_before_memory_is_taken(kind, tmp_path):
    path = tmp_path / f"logs.{kind}"
    BOMBS[kind](path)
    code = (
        "import resource, sys; from pathlib import Path; from omrl.data import interchange; "
        "from omrl.commands.data import Import; from omrl.errors import OmrlError\n"
        "try: interchange.read(Import(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], terminations='none'))\n"
        "except OmrlError as error: print(error)\n"
        "print(max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))"
    )
    command = [sys.executable, "-c", code, str(path), str(tmp_path / "out"), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    *_, sentence, kilobytes = done.stdout.splitlines()
    assert f"{path} is a file of " in sentence and "GB; if that is right, say --max-gb " in sentence
    assert int(kilobytes) * 1024 < MEMORY
    assert tree(tmp_path) == [path.name]


def test_the_limit_can_be_raised(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "ALWAYS", 1_000_000)
    rows = 100_000  # six columns of 4 bytes, from a few kilobytes
    hdf5_bomb(tmp_path / "logs.hdf5", rows)
    with pytest.raises(OmrlError, match=r"KB that unpacks to 2.4 MB; if that is right, say --max-gb 0.01"):
        load("hdf5", tmp_path / "logs.hdf5")
    dataset = load("hdf5", tmp_path / "logs.hdf5", max_gb=0.01)
    assert dataset.manifest.tasks[0].rows == rows - 1


@pytest.mark.parametrize("claimed", [10**9, 10**15])
def test_an_array_that_claims_more_than_its_file(claimed, tmp_path):
    with zipfile.ZipFile(tmp_path / "logs.npz", "w") as archive, archive.open("observations.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (claimed,)})
        file.write(bytes(100))
    with pytest.raises(OmrlError, match=f"array 'observations' claims {4 * claimed:,} bytes, but 100 are there"):
        load("npz", tmp_path / "logs.npz")


class Asked(io.BytesIO):
    """A file that remembers how much was asked of it: so much memory a real one takes, whatever it holds."""

    most = 0

    def read(self, size=-1):
        self.most = max(self.most, size)
        return super().read(size)


def test_a_header_that_claims_to_be_longer_than_its_file():
    file = Asked(b"\x93NUMPY\x02\x00" + (2**32 - 1).to_bytes(4, "little") + b"{'descr': '<f8'}")
    with pytest.raises(ValueError, match="array header"):
        shape_and_type(file)
    assert 0 < file.most < 100_000


def test_one_long_text_that_all_rows_share(tmp_path):
    with h5py.File(tmp_path / "logs.hdf5", "w") as file:
        for name in ("observations", "actions", "rewards", "terminals", "timeouts"):
            file[name] = np.zeros(20)
        file["task"] = ["x" * 1_000_000] * 20
    with pytest.raises(OmrlError, match="column 'task' holds a text of 1,000,000 characters"):
        load("hdf5", tmp_path / "logs.hdf5")


def test_arrays_in_other_files_are_not_followed(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(400))
    with h5py.File(tmp_path / "logs.hdf5", "w") as file:
        for name in ("task", "actions", "rewards", "terminals", "timeouts"):
            file[name] = np.zeros(100)
        file.create_dataset("observations", (100,), "f4", external=[(str(tmp_path / "secret"), 0, 400)])
    with pytest.raises(OmrlError, match="array 'observations' lies in another file; copy it into this one"):
        load("hdf5", tmp_path / "logs.hdf5")


def test_an_import_that_would_never_end_is_ended(tmp_path, monkeypatch):
    """A pipe to which nobody writes: to open it takes for ever."""
    os.mkfifo(tmp_path / "logs.hdf5")
    monkeypatch.setattr(apart, "TRIAL_SECONDS", 1.0)
    with pytest.raises(
        OmrlError, match=r"logs.hdf5 cannot be read as hdf5: reading it did not end in 1 s, it is damaged"
    ):
        load("hdf5", tmp_path / "logs.hdf5")
    (tmp_path / "logs").mkdir()
    with h5py.File(tmp_path / "logs" / "a.hdf5", "w") as file:
        file["rewards"] = np.zeros(3)
    os.mkfifo(tmp_path / "logs" / "b.hdf5")
    with pytest.raises(OmrlError, match=r"b.hdf5 cannot be read as hdf5: reading it did not end"):
        load("hdf5", tmp_path / "logs")


def test_a_crash_of_the_library_is_one_sentence(tmp_path, monkeypatch):
    program = tmp_path / "crash.py"
    program.write_text("import os, sys; print(sys.stdin.readline().split(' ', 1)[1].strip(), flush=True); os.abort()")
    monkeypatch.setattr(apart, "TRIAL", program)
    (tmp_path / "logs.hdf5").touch()
    with pytest.raises(OmrlError, match=r"logs.hdf5 cannot be read as hdf5: the HDF5 library crashes on it"):
        load("hdf5", tmp_path / "logs.hdf5")


@pytest.mark.parametrize("kind", ["hdf5", "minari"])
def test_an_export_to_a_full_disk_is_one_sentence_and_leaves_nothing(kind, tmp_path):
    rows = make_task((2_000,) * 8)
    make_dataset({"a": rows}, split=None, params=None).save(tmp_path / "logs")
    before = tree(tmp_path)
    room = 100_000  # bytes of a file; the data has more
    command = [sys.executable, "-m", "omrl", "data", "export", "--to", kind, str(tmp_path / "logs")]
    done = subprocess.run(
        [*command, str(tmp_path / "out")],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith(f"error: {tmp_path / 'out'} could not be written: ")
    assert tree(tmp_path) == before
    # With room it works.
    subprocess.run([*command, str(tmp_path / "out")], capture_output=True, timeout=100, check=True)
    back = interchange.read(Import(src=tmp_path / "out", dir=tmp_path / "back", format=kind))
    assert_same_dataset(back, MetaDataset.open(tmp_path / "logs"))


def test_an_export_that_cannot_fit_is_not_begun(tmp_path, monkeypatch):
    dataset = make_dataset().save(tmp_path / "logs")
    monkeypatch.setattr(apart.shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(OmrlError, match=r"out.hdf5 could not be written: it needs about 0.0 MB, 0.0 MB are free"):
        interchange.write(dataset, tmp_path / "out.hdf5", "hdf5")
    assert not (tmp_path / "out.hdf5").exists()


def test_only_what_is_on_disk_is_exported(tmp_path):
    with pytest.raises(OmrlError, match="only a meta-dataset on disk can be exported; save this one first"):
        interchange.write(make_dataset(), tmp_path / "out.hdf5", "hdf5")


def test_d4rl_finds_its_names_in_an_export(tmp_path):
    dataset = make_dataset().save(tmp_path / "logs")
    interchange.write(dataset, tmp_path / "out.hdf5", "hdf5")
    every = [dataset.rows(task.name) for task in dataset.tasks]
    with h5py.File(tmp_path / "out.hdf5") as file:
        for theirs, ours in {"terminals": "terminations", "timeouts": "truncations"}.items():
            np.testing.assert_array_equal(file[theirs][:], np.concatenate([rows[ours] for rows in every]))
        assert {"observations", "actions", "rewards", "next_observations"} <= set(file)
