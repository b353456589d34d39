"""Small logs to test with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from omrl.data import MetaDataset
from omrl.data.manifest import _checksum

Arrays = dict[str, np.ndarray]


def make_task(
    lengths: tuple[int, ...] = (4, 3, 5, 2, 3, 4, 2, 2),
    seed: int = 0,
    S: int = 3,
    A: int = 2,
    checkpoints: tuple[int, ...] = (0, 100, 200, 300),
    dense: bool = True,
) -> Arrays:
    """Episodes of these lengths, spread evenly over the checkpoints; later checkpoints earn more."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    episode = np.repeat(np.arange(len(lengths)), lengths)
    step = np.concatenate([np.arange(length) for length in lengths])
    last = np.append(np.diff(episode) != 0, True)
    obs = rng.normal(size=(n, S)).astype(np.float32)
    after = rng.normal(size=(n, S)).astype(np.float32)
    next_obs = np.where(last[:, None], after, np.roll(obs, -1, axis=0))
    arrays = {
        "observations": obs,
        "actions": rng.uniform(-2, 3, size=(n, A)).astype(np.float32),
        "rewards": rng.normal(size=n).astype(np.float32),
        "next_observations": next_obs,
        "terminations": last & (episode % 2 == 0),
        "truncations": last & (episode % 2 == 1),
        "episode": episode.astype(np.int32),
        "step": step.astype(np.int32),
    }
    if checkpoints:
        which = episode * len(checkpoints) // len(lengths)
        arrays["policy_step"] = np.array(checkpoints, np.int32)[which]
        arrays["rewards"] += 10 * which.astype(np.float32)
    if dense:
        arrays["rewards_dense"] = rng.normal(size=n).astype(np.float32)
    return arrays


SETTINGS: dict[str, Any] = {
    "action_low": [-2.0, -2.0],
    "action_high": 3.0,
    "varies": "reward",
    "split": {"train": ["a", "b"], "test": ["c d/é"]},
    "params": {"a": {"goal": [0.1, 0.2]}, "b": {"goal": [1, 2]}},
    "source": {"algorithm": "sac", "seed": 7},
    "horizon": 2,
}


def make_logs() -> dict[str, Arrays]:
    """Three tasks of different lengths."""
    return {"a": make_task(seed=1), "b": make_task((3,) * 8, seed=2), "c d/é": make_task((2, 5, 1, 1, 4), seed=3)}


def make_dataset(logs: dict[str, Arrays] | None = None, **changes: Any) -> MetaDataset:
    return MetaDataset.from_arrays(make_logs() if logs is None else logs, **{**SETTINGS, **changes})


def assert_same_rows(left: Arrays, right: Arrays) -> None:
    """Equal names, dtypes, shapes and bits."""
    assert list(left) == list(right)
    for name in left:
        assert left[name].dtype == right[name].dtype and left[name].shape == right[name].shape, name
        assert left[name].tobytes() == right[name].tobytes(), name


def assert_same_dataset(left: MetaDataset, right: MetaDataset) -> None:
    """Equal manifests, checksums among them, and equal rows."""
    assert left.manifest == right.manifest
    for task in left.tasks:
        assert_same_rows(left.rows(task.name), right.rows(task.name))


def edit_manifest(folder: Path, edit: Any, resign: bool = True) -> None:
    """Change the manifest's content; `resign` gives it a fitting checksum again."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    edit(content)
    path.write_text(json.dumps({**content, "checksum": _checksum(content) if resign else "0" * 64}))


def tree(folder: Path) -> list[str]:
    """Everything below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
