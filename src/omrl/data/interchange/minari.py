"""Minari: one dataset per task, without loss both ways; other Minari datasets can be imported too.

Where Minari has a place for something it is put there, so that Minari's own tools find it. The rest of the manifest is
metadata under the key "omrl".
"""

from __future__ import annotations

import copy
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from omrl.commands.data import Import
from omrl.data.arrays import Arrays, Place, episode_starts
from omrl.data.dataset import MetaDataset
from omrl.data.interchange import MINARI_EXPORT, folder_of, refuse_flags, size_of
from omrl.data.interchange.answers import complete_header, named_tasks
from omrl.data.interchange.apart import try_hdf5, write_apart
from omrl.data.interchange.hdf5 import claimed
from omrl.data.interchange.limits import Limit
from omrl.data.manifest import Header, TaskEntry, Told, as_object, as_plain, entry_from_version_1, from_plain, json_copy
from omrl.data.writer import write_all
from omrl.errors import OmrlError, needs_extra
from omrl.families import FAMILIES, Task, register
from omrl.schema import Count, conform
from omrl.storage import folders
from omrl.storage.files import read_json

with needs_extra("minari", "This format"):
    import gymnasium
    import h5py
    import minari
    from gymnasium.spaces import Box
    from minari.data_collector import EpisodeBuffer

KEY = "omrl"
# Bytes of the number that Minari keeps of every episode.
NUMBER = 8
# The flags that say of a dataset what Minari does not.
TAKEN = (
    *("--action-low", "--action-high", "--varies", "--horizon", "--family", "--task-params"),
    *("--test-tasks", "--test-fraction", "--seed"),
)


class Described(TypedDict, total=False):
    """What of Minari's metadata says how much memory its reader takes at once."""

    total_episodes: Count


def write_dataset(dataset: MetaDataset, dst: Path, force: bool) -> None:
    """Write `omrl/NAME/TASK-v0` under the Minari folder `dst`."""
    folder = folder_of(dataset)
    group = _group(folder)
    target = dst / group
    if target.exists() and not force:
        raise OmrlError(f"{target} exists already; use --force to replace it")
    missing = [path for path in (target.parent, dst) if not path.exists()]
    try:
        with folders.replacing(target, MINARI_EXPORT) as new:
            staging = new / "staging"
            write_apart(f"{__name__}:write_folder", folder, staging, dst, size_of(dataset))
            for path in (staging / group).iterdir():
                path.rename(new / path.name)
            for file in (staging / group.parent).glob("*.json"):  # Minari's record of the namespace above ours
                file.replace(target.parent / file.name)
            shutil.rmtree(staging)
    except OSError as error:
        raise OmrlError(f"{dst} could not be written: {error}") from error
    finally:
        if not target.exists():
            for path in missing:
                with suppress(OSError):  # it was never made, or holds what could not be removed either
                    path.rmdir()


def _group(folder: Path) -> Path:
    return Path("omrl") / _slug(folder.resolve().name)


def write_folder(folder: Path, staging: Path) -> None:
    """Write the dataset in `folder`, one Minari dataset per task, under a new Minari folder."""
    dataset = MetaDataset.open(folder)
    with _datasets_path(staging), warnings.catch_warnings():
        # Minari warns of every piece of metadata that a dataset does without.
        warnings.simplefilter("ignore", UserWarning)
        used: set[str] = set()
        for position, entry in enumerate(dataset.manifest.tasks):
            slug = _slug(entry.name)
            slug = slug if slug not in used else f"{slug}-{position}"
            used.add(slug)
            _write_task(dataset, position, f"{_group(folder).as_posix()}/{slug}-v0")


def _write_task(dataset: MetaDataset, position: int, dataset_id: str) -> None:
    manifest, entry = dataset.manifest, dataset.manifest.tasks[position]
    rows = dataset.rows(position)
    starts = episode_starts(rows["episode"])
    ends = np.append(starts[1:], entry.rows)
    env = _env_spec(manifest.family, entry.params)
    known = {"random": entry.reference.random, "expert": entry.reference.expert}
    # With only one of the two Minari would roll out a random policy to find the other.
    scored = env is not None and None not in known.values()
    written = minari.create_dataset_from_buffers(
        dataset_id=dataset_id,
        buffer=[_episode_buffer({n: v[a:b] for n, v in rows.items()}) for a, b in zip(starts, ends, strict=True)],
        env=env,
        observation_space=Box(-np.inf, np.inf, (manifest.observation_dim,), np.float32),
        action_space=Box(np.array(manifest.action_low, np.float32), np.array(manifest.action_high, np.float32)),
        algorithm_name=str(manifest.source["algorithm"]) if "algorithm" in manifest.source else None,
        ref_min_score=known["random"] if scored else None,
        ref_max_score=known["expert"] if scored else None,
        description=f"task {entry.name} of the meta-dataset {dataset_id.split('/')[1]}",
    )
    about = {key: value for key, value in as_object(manifest).items() if key != "tasks"}
    about |= {"position": position, "of": len(manifest.tasks), "task": as_plain(entry)}
    written.storage.update_metadata({KEY: about})
    per_episode = [name for name in ("episode", "policy_step") if name in rows]
    written.storage.update_episode_metadata([{name: int(rows[name][a]) for name in per_episode} for a in starts])


def _episode_buffer(rows: Arrays) -> Any:
    obs, next_obs = rows["observations"], rows["next_observations"]
    infos: dict[str, NDArray[Any]] = {}
    # Minari keeps T+1 observations, so a successor needs a place of its own only where it is not the next observation.
    # Compared as bits: 0.0 equals -0.0 but is not the same.
    odd = np.flatnonzero((next_obs[:-1].view(np.uint32) != obs[1:].view(np.uint32)).any(axis=1))
    if len(odd):
        infos |= {"next_observations_step": odd, "next_observations": next_obs[odd]}
    if "rewards_dense" in rows:
        infos["rewards_dense"] = np.append(np.float32(0), rows["rewards_dense"])  # infos begin with the reset's
    return EpisodeBuffer(
        observations=np.concatenate([obs, next_obs[-1:]]),
        actions=rows["actions"],
        rewards=rows["rewards"],
        terminations=rows["terminations"],
        truncations=rows["truncations"],
        infos=infos or None,
    )


def _env_spec(family: str | None, params: dict[str, Any]) -> Any:
    """The family's environment with the task as keyword arguments; None for one's own logs."""
    if family not in FAMILIES or not FAMILIES[family].env_id:
        return None
    register()
    spec = copy.deepcopy(gymnasium.spec(FAMILIES[family].env_id))
    spec.kwargs.update(params)
    return spec


def read_dataset(args: Import) -> MetaDataset:
    """Import every Minari dataset under `args.src`, each as one task."""
    found = sorted(path.parent for path in args.src.rglob("metadata.json") if path.parent.name == "data")
    if not found:
        raise OmrlError(f"{args.src} holds no Minari dataset")
    limit = Limit(args.max_gb)
    files = sorted(file for path in found for file in path.glob("*.hdf5"))
    try_hdf5(files, limit)
    try:
        for file in files:
            limit.check(file, _claimed(file))
        for path in found:
            about = path / "metadata.json"
            said = cast(Described, conform(Described, read_json(about), about))
            limit.check(about, NUMBER * said.get("total_episodes", 0))
        datasets = [minari.MinariDataset(path) for path in found]
        ours = [dataset for dataset in datasets if KEY in dataset.storage.metadata]
        if not ours:
            return _read_foreign(args, datasets)
        if len(ours) < len(datasets):
            raise OmrlError(f"{args.src} mixes datasets that omrl exported with others; give the folder of one kind")
        refuse_flags(args)
        return _read_ours(args, ours)
    except (OSError, RuntimeError, LookupError, ValueError, AssertionError, TypeError, AttributeError) as error:
        raise OmrlError(f"{args.src} cannot be read as Minari datasets: {error}") from error


def _claimed(path: Path) -> int:
    """Bytes that everything in a file of Minari's takes in memory."""
    found: list[int] = []
    with h5py.File(path, "r") as file:
        file.visititems(lambda _, item: found.append(claimed(item)) if isinstance(item, h5py.Dataset) else None)
    return sum(found)


def _read_ours(args: Import, datasets: Sequence[Any]) -> MetaDataset:
    about = [dict(dataset.storage.metadata[KEY]) for dataset in datasets]
    entries = [
        from_plain(TaskEntry, entry_from_version_1(record.pop("task")), str(args.src / dataset.id))
        for record, dataset in zip(about, datasets, strict=True)
    ]
    positions = [record.pop("position") for record in about]
    if any(record != about[0] for record in about):
        raise OmrlError(f"{args.src} holds more than one meta-dataset; give the folder omrl/NAME of one")
    total = about[0].pop("of")
    if total != len(positions) or set(positions) != set(range(len(positions))):
        raise OmrlError(
            f"{args.src} holds {len(positions)} of the {total} tasks of its dataset; give the folder with all of them"
        )
    header = from_plain(Header, about[0], str(args.src))
    order = np.argsort(positions)
    tasks = [Task(entries[i].name, entries[i].params) for i in order]

    def rows() -> Iterator[tuple[str, Arrays, Told, Place]]:
        for i in order:
            place = Place(str(datasets[i].storage.data_path), entries[i].name)
            yield entries[i].name, _rows(datasets[i]), entries[i].told, place

    checksums = {entry.name: entry.sha256 for entry in entries}
    return write_all(args.dir, header, tasks, rows(), force=args.force, expected=checksums)


def _read_foreign(args: Import, datasets: Sequence[Any]) -> MetaDataset:
    ignored = [flag for flag in args.described if flag not in TAKEN]
    if ignored:
        raise OmrlError(f"Minari datasets say themselves which array is what; leave out {', '.join(ignored)}")
    names = [str(dataset.id) for dataset in datasets]
    for dataset, name in zip(datasets, names, strict=True):
        for part, space in (("observation", dataset.observation_space), ("action", dataset.action_space)):
            if type(space).__name__ != "Box" or len(space.shape) != 1:
                raise OmrlError(f"{args.src}: task {name!r}: its {part} space is {space}, not a Box of one dimension")
    observation, action = datasets[0].observation_space, datasets[0].action_space
    bounded = bool(np.isfinite(action.low).all() and np.isfinite(action.high).all())
    bounds = (action.low.tolist(), action.high.tolist()) if bounded else None
    header = complete_header(args, names, observation.shape[0], action.shape[0], bounds)
    params = {
        name: json_copy(dataset.env_spec.kwargs, f"the environment arguments of {name!r}")
        for dataset, name in zip(datasets, names, strict=True)
        if dataset.env_spec is not None
    }

    def rows() -> Iterator[tuple[str, Arrays, Told, Place]]:
        for dataset, name in zip(datasets, names, strict=True):
            arrays = _rows(dataset)
            last = np.append(np.diff(arrays["episode"]) != 0, True)
            arrays["truncations"] = arrays["truncations"] | (last & ~arrays["terminations"])  # the log ends there
            yield name, arrays, Told(), Place(str(dataset.storage.data_path), name)

    return write_all(args.dir, header, named_tasks(args, names, params), rows(), force=args.force)


def _rows(dataset: Any) -> Arrays:
    """All episodes one after the other."""
    episodes: list[Arrays] = []
    described = dataset.storage.get_episode_metadata(range(dataset.total_episodes))
    for number, (episode, about) in enumerate(zip(dataset.iterate_episodes(), described, strict=True)):
        infos = episode.infos or {}
        length = len(episode.rewards)
        rows = {
            "observations": episode.observations[:-1],
            "actions": episode.actions,
            "rewards": episode.rewards,
            "next_observations": episode.observations[1:].copy(),
            "terminations": episode.terminations,
            "truncations": episode.truncations,
            "episode": np.full(length, about.get("episode", number)),
            "step": np.arange(length),
        }
        if "next_observations_step" in infos:
            rows["next_observations"][infos["next_observations_step"]] = infos["next_observations"]
        if "rewards_dense" in infos:
            rows["rewards_dense"] = infos["rewards_dense"][1:]
        if "policy_step" in about:
            rows["policy_step"] = np.full(length, about["policy_step"])
        episodes.append(rows)
    return {name: np.concatenate([rows[name] for rows in episodes]) for name in episodes[0]}


def _slug(name: str) -> str:
    """A name as Minari ids allow it; the true one is kept in the metadata."""
    return re.sub(r"[^-\w]", "_", name, flags=re.ASCII).strip("-") or "task"


@contextmanager
def _datasets_path(path: Path) -> Iterator[None]:
    """Minari takes the folder that it writes to from the environment."""
    outer = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(path)
    try:
        yield
    finally:
        if outer is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = outer
