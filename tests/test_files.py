from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from omrl.errors import OmrlError
from omrl.storage.files import harmless, read_json, read_rows, replacing, write_json, write_rows, write_tensors


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_its_name_only_when_it_is_whole(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == tmp_path
    assert path.read_text() == "new"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error), replacing(path) as temporary:
        temporary.write_text("ne")
        raise error
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_what_an_earlier_kill_left_does_not_matter(tmp_path):
    with replacing(tmp_path / "file") as temporary:
        temporary.touch()
    temporary.write_text("half of an earlier file, longer than the new one")
    write_json(tmp_path / "file", {"a": 1})
    assert json.loads((tmp_path / "file").read_text()) == {"a": 1}
    assert names(tmp_path) == ["file"]


def test_a_link_under_the_temporary_name_is_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    for link in (Path.symlink_to, Path.hardlink_to):
        link(tmp_path / ".file.tmp", precious)
        write_json(tmp_path / "file", {"a": 1})
        assert precious.read_text() == "years of work"
    assert names(tmp_path) == ["file", "precious"]


def test_two_that_write_the_same_file_at_once_leave_one_of_both(tmp_path):
    with pytest.raises(OmrlError, match="another process writes it"), replacing(tmp_path / "file") as temporary:
        temporary.write_text("first")
        write_json(tmp_path / "file", {"second": 1})
    assert json.loads((tmp_path / "file").read_text()) == {"second": 1}


def test_json_is_readable_and_ends_with_a_line_end(tmp_path):
    write_json(tmp_path / "x.json", {"numbers": [1, 2], "name": "ä"})
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text) == {"numbers": [1, 2], "name": "ä"}
    assert text.endswith("}\n")
    assert text.count("\n") > 2


def test_json_that_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"value": object()})
    assert names(tmp_path) == []


def test_tensors_come_back_as_they_were_whatever_their_layout(tmp_path):
    arrays = {
        "scalar": np.array(3.5, dtype=np.float32),
        "empty": np.zeros((2, 0, 3), dtype=np.float32),
        "half": np.arange(6, dtype=np.float16).reshape(2, 3),
        "flags": np.array([True, False]),
        "bytes": np.arange(5, dtype=np.uint8),
        "counts": np.array([2**40], dtype=np.int64),
        "turned": np.arange(6.0).reshape(2, 3).T,
        "part": np.arange(24.0).reshape(2, 4, 3)[:, 1:3],
    }
    path = tmp_path / "x.safetensors"
    write_tensors(path, arrays, {"note": "kept"})
    found = load_file(path)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape, name
        np.testing.assert_array_equal(found[name], array)
    with safe_open(path, framework="np") as file:
        assert file.metadata() == {"note": "kept"}
    assert names(tmp_path) == ["x.safetensors"]


def test_tensor_files_are_as_readable_as_other_files(tmp_path):
    write_tensors(tmp_path / "x.safetensors", {"a": np.zeros(1)})
    (tmp_path / "plain").touch()
    assert (tmp_path / "x.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_error_is_never_longer_than_anyone_reads() -> None:
    sentence = str(OmrlError(f"{'x' * 100_000} is damaged."))
    assert len(sentence) < 1000 and sentence.endswith("is damaged.")
    assert len(str(OmrlError("\x00" * 700))) < 1000  # each of which is shown as four


def test_an_error_is_one_line_whatever_names_are_in_it() -> None:
    assert str(OmrlError("task 'a\nb\x1b[31m' é is missing")) == "task 'a\\nb\\x1b[31m' é is missing"


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-1 +cmd|' /C calc'!A0", "'-1 +cmd|' /C calc'!A0"),
        ("+cmd", "'+cmd"),
        ("-1.5 [-2.0, -1.0]", "-1.5 [-2.0, -1.0]"),
        (-3, "-3"),
        ("-", "-"),
        ("pump-1", "pump-1"),
        ("-inf", "-inf"),
        ("'=1", "''=1"),
        ("'tis", "'tis"),
    ],
)
def test_no_cell_is_a_formula_and_all_come_back(tmp_path, cell, written):
    assert harmless(cell) == written
    write_rows(tmp_path / "x.csv", [["name"], [harmless(cell)], ["=raw"]])
    assert read_rows(tmp_path / "x.csv", ["name"]) == [{"name": str(cell)}, {"name": "=raw"}]


@pytest.mark.parametrize("content", [b"[" * 200_000, b'{"a": ' * 200_000, b"\xff\xfe{\x00}\x00", b"", b"[]", b"{"])
def test_what_is_no_json_object_gets_one_sentence(tmp_path, content):
    (tmp_path / "job.json").write_bytes(content)
    with pytest.raises(OmrlError, match=r"job\.json is not"):
        read_json(tmp_path / "job.json")
