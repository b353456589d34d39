"""Runs the trials of a row: trains their learners together and judges them on training tasks that were held out."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NotRequired

import numpy as np
from torch import Tensor
from typing_extensions import TypedDict

from omrl.algorithms import get_algorithm
from omrl.commands.evaluate import CONTEXT_ROWS
from omrl.commands.train import Train
from omrl.commands.tune import Tune
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.evaluation.given_context import given_context
from omrl.evaluation.summaries import summary
from omrl.learning import training
from omrl.learning.devices import choose_device, on_cpu
from omrl.learning.stages import Frozen, learn_stages
from omrl.learning.starting import starting_point
from omrl.runs.joining import OF_LEARNERS
from omrl.runs.run import Run
from omrl.schema import changed, conform, read
from omrl.selecting.signals import Ground, look
from omrl.selecting.verdict import Word, judge, sum_up
from omrl.storage.files import read_json_list, replacing
from omrl.tuning.rows import Row
from omrl.tuning.trials import populate_trials, together

Tried = TypedDict(
    "Tried",
    {
        "family": str,
        "row": str,
        "algorithm": str,
        "trial": dict[str, float],
        "level": str | None,
        "updates": int,
        "seeds": int,
        "held_out": int,
        "return": float,
        "normalised": float | None,
        "verdict": Word | None,
        "alive": bool,
        "settings": NotRequired[str],
    },
)
"""A trial and what came of it; `settings` is a digest of all that decides it."""


@dataclass
class Shared:
    """What the trials of a row have in common, once it is there."""

    frozen: dict[str, Tensor] = field(default_factory=dict)
    """What a first stage ends with."""
    ground: Ground | None = None
    """What is fitted to the log, by which learners are judged without a simulator."""


def measure(args: Tune, row: Row) -> list[Tried]:
    """All trials of a row, and those beyond the edge if the best one lies there."""
    shared = Shared()
    found = try_out(args, row, row.trials, args.seeds, shared)
    further = row.beyond(best_of(found)["trial"])
    if further:
        # As many learners as before: the program is compiled already.
        learners = max(1, len(row.trials) * args.seeds // len(further))
        found += try_out(replace(args, rungs=0), row, further, learners, shared)
    return found


def row_unit(args: Mapping[str, object], row: Mapping[str, object]) -> list[Tried]:
    """The trials of a row, as a unit of work."""
    told: dict[str, Any] = dict(args)
    told |= {name: Path(told[name]) for name in ("file", "data", "out")}
    told |= {name: tuple(told[name]) for name in ("rows", "trust")}
    return measure(Tune(**told), read(Row, row, "a unit"))


def best_of(found: Sequence[Tried]) -> Tried:
    """The best trial, of those that were not dropped on the way."""
    longest = max(one["updates"] for one in found)
    return max(
        (one for one in found if one["updates"] == longest), key=lambda one: _rank(one.get("verdict"), one["return"])
    )


def _rank(verdict: Word | None, score: float) -> tuple[int, float]:
    """What trials are ordered by: first what logs say of them, if they were judged by logs, and then the score."""
    words: tuple[Word, ...] = ("worse", "cannot tell", "better")
    return 0 if verdict is None else words.index(verdict), score if np.isfinite(score) else -np.inf


def better_half(trials: Sequence[int], verdicts: Sequence[Word | None], scores: Mapping[int, float]) -> list[int]:
    """Those that go on; of equal ones, those that were named first."""
    ranked = sorted(trials, key=lambda trial: _rank(verdicts[trial], scores[trial]), reverse=True)
    return sorted(ranked[: (len(trials) + 1) // 2])


def rung_steps(steps: int, rungs: int) -> list[int]:
    """Updates after which half of the trials are dropped, and the last one, after which the best is chosen."""
    return [steps // 2 ** (rungs - rung) for rung in range(rungs)] + [steps]


def kept_trials(path: Path) -> list[dict[str, object]]:
    """What a file of trials holds; a file of anything else is refused."""
    found = read_json_list(path) if path.exists() else []
    if any("family" not in one or "row" not in one for one in found):
        raise OmrlError(f"{path} is not a file of trials: each says of which family and row it is.")
    return found


def settings(args: Tune, row: Row) -> str:
    """A digest of what decides the trials of a row: its own settings, those of the command, and the data."""
    dataset = MetaDataset.open(args.data)
    of_args = {name: getattr(args, name) for name in ("steps", "seeds", "episodes", "bfloat16", "rungs")}
    rows = [[entry.name, entry.sha256] for entry in dataset.manifest.tasks]
    text = json.dumps([asdict(row), of_args, rows, dataset.split], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def kept_row(path: Path, row: Row, digest: str) -> list[Tried]:
    """The trials of a row that a file has of these settings, if it has all."""
    own: Any = [one for one in kept_trials(path) if (one["row"], one.get("settings")) == (row.label, digest)]
    if [one.get("trial") for one in own[: len(row.trials)]] != row.trials:
        return []
    found: list[Tried] = conform(list[Tried], own, path)
    return found


def keep(path: Path, found: Sequence[Tried]) -> None:
    """Put the trials of a row into a file, in the place of earlier ones; those of other data and rows stay."""

    def place(one: Mapping[str, Any]) -> tuple[str, str]:
        return one["family"], one["row"]

    kept = [one for one in kept_trials(path) if place(one) != place(found[0])] + list(found)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text("[\n" + ",\n".join(json.dumps(one) for one in kept) + "\n]\n")


def try_out(args: Tune, row: Row, trials: Sequence[Mapping[str, float]], seeds: int, shared: Shared) -> list[Tried]:
    """Some trials of a row, with so many learners each."""
    dataset, device = MetaDataset.open(args.data), choose_device(args.device)
    start, usual = starting_point(Train(row.algorithm, args.data, Path(), preset=row.preset))
    usual = changed(usual, {**row.changes, "bfloat16": args.bfloat16}, row.algorithm)
    configs = [changed(usual, trial, row.algorithm) for trial in trials for _ in range(seeds)]
    names = dataset.split["train"]
    held = names[3::4] or names
    level = dataset.level(start.level or "mixed")
    view = level.select([name for name in names if name not in held] or names)
    judged, kind = level.select(held), get_algorithm(row.algorithm)
    rows = view.to(device, max_rows=start.max_rows)
    # Trials that differ in more than decimal numbers, such as the width of a network, are populations of their own.
    groups = [Group(places) for places in together(configs)]
    # All numbers that are tried, also where some learners do not differ: trials beyond an edge are the same program.
    tried = sorted(name for names, _ in row.axes for name in names if isinstance(getattr(usual, name), float))
    scores: list[Any] = [None] * len(configs)
    alive, reached = [False] * len(configs), [0] * len(configs)
    verdicts: list[Word | None] = [None] * len(trials)
    if dataset.family is None and shared.ground is None:
        shared.ground = Ground(level.select(names), held)
    kept = list(range(len(trials)))
    done = 0
    for until in rung_steps(args.steps, args.rungs):
        for group in groups:
            places = [place for place in group.places if place // seeds in kept]
            if not places:
                continue
            own = [configs[place] for place in places]
            with tempfile.TemporaryDirectory() as folder:
                train = replace(start, seeds=len(own), steps=until)
                run = Run.create(Path(folder), training.run_config(train, own[0], dataset), {})
                learner = training.Training(run, rows, device)
                if stages := learner.algorithm.stages(dataset.manifest.varies):
                    if not shared.frozen:
                        one = Run(run.folder, replace(run.config, seeds=1))
                        shared.frozen |= learn_stages(stages, one, rows, learner.normalise, device, 1_000)
                    learner.frozen = Frozen(shared.frozen, usual.bfloat16)
                shape = (dataset.observation_dim, dataset.action_dim)
                own_seeds = [train.seed + group.places.index(place) for place in places]
                populated = partial(populate_trials, kind, *shape, own, own_seeds, tried=tried)
                # As a run of as many learners would be: small networks take a third of the time when compiled.
                mode = on_cpu(own[0], len(own), until - done)["mode"] if device == "cpu" else None
                learner.algorithm, learner.population = populated(device=device, mode=mode)
                if done:
                    learner.step = done
                    learner.population.load_state(group.state_of(places))
                learner.learn(1_000, until)
                group.keep(places, learner.population.state())
                for place, lives in zip(places, learner.population.alive.tolist(), strict=True):
                    alive[place], reached[place] = lives, until
                if shared.ground is None:
                    # Beside the simulator: on a GPU each of its steps would wait for others' updates.
                    acting = learner if device == "cpu" else learner.copy_on_cpu(populated(device="cpu"))
                    found = given_context(acting, judged, CONTEXT_ROWS, args.episodes, seed=0).mean(-1)
                    for place, own_scores in zip(places, found, strict=True):
                        scores[place] = own_scores
                    continue
                for number in {place // seeds for place in places}:
                    those = [i for i, place in enumerate(places) if place // seeds == number]
                    signals = look(learner, shared.ground, CONTEXT_ROWS, learners=those)
                    verdicts[number] = judge(sum_up(signals)).word
                    for i, own_scores in zip(those, signals.gained.mean(0), strict=True):
                        scores[places[i]] = own_scores
        means = {trial: float(np.mean(scores[trial * seeds : (trial + 1) * seeds])) for trial in kept}
        kept = better_half(kept, verdicts, means)
        done = until
    results: list[Tried] = []
    for i, trial in enumerate(trials):
        part = slice(i * seeds, (i + 1) * seeds)
        about = summary(np.stack(scores[part]), judged, reached[part.start])
        results.append(
            {
                "family": dataset.family or args.data.name,
                "row": row.label,
                "algorithm": row.algorithm,
                "trial": dict(trial),
                "level": start.level,
                "updates": reached[part.start],
                "seeds": seeds,
                "held_out": len(held),
                "return": about["mean"]["value"],
                "normalised": about.get("normalised"),
                "verdict": verdicts[i],
                "alive": all(alive[part]),
            }
        )
    return results


class Group:
    """Learners of one shape, which are a population: what they have learnt so far."""

    def __init__(self, places: Sequence[int]) -> None:
        self.places = places
        self._state: dict[str, Tensor] = {}
        self._kept: list[int] = []

    def keep(self, places: Sequence[int], state: Mapping[str, Tensor]) -> None:
        """What learners have learnt."""
        self._kept, self._state = list(places), {name: value.clone() for name, value in state.items()}

    def state_of(self, places: Sequence[int]) -> dict[str, Tensor]:
        """What some of them have learnt; the stream of random numbers is that of all."""
        rows = [self._kept.index(place) for place in places]
        return {name: value[rows] if name in OF_LEARNERS else value for name, value in self._state.items()}
