"""What a trained run does: how it embeds tasks, and what its adapted policy does in them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from omrl.commands.evaluate import Evaluate
from omrl.data import MetaDataset
from omrl.data.arrays import to_unit
from omrl.errors import OmrlError
from omrl.evaluation.contexts import embeddings, infer_tasks
from omrl.evaluation.embedding import pair_distances, principal_components, tsne
from omrl.evaluation.logged import halves
from omrl.families import Task, get_family
from omrl.reporting.gather import RunFacts, colourings, task_values
from omrl.runs.choices import as_numbers
from omrl.runs.model import Model
from omrl.runs.policy import CONTEXT

Array = np.ndarray[Any, Any]
T = TypeVar("T")
TASKS, DRAWS = 20, 100
FILM_TASKS, FILM_FRAMES = 3, 6
# Held-out episodes that are shown beside what the policy would have done, their rows, and rows of the log that these
# are compared with.
EPISODES, EPISODE_ROWS, LIKE_ROWS = 3, 200, 10_000
# The learner that is looked at, and the seed of its contexts and start states: those that `omrl evaluate` starts with.
LEARNER, SEED = 0, Evaluate.seed


@dataclass(frozen=True)
class Embedding:
    """How one learner embeds tasks from many contexts each."""

    tasks: tuple[Task, ...]
    unseen: tuple[bool, ...]
    label: str
    """What `values` is."""
    values: Array
    """[T], or [T, D] where contexts of one task differ in it."""
    context: int
    z: Array  # [T, D, l]
    axes: Array
    """[T * D, 3]: z itself where it has up to three dimensions, else its principal components."""
    shares: Array | None
    """Share of the variance of each component; None where z is shown as it is."""
    flat: Array
    """t-SNE, [T * D, 2]."""
    same: Array
    different: Array
    esr: list[float]
    rms: list[float]

    @property
    def dot_values(self) -> Array:
        """Of every dot, [T * D]."""
        return np.broadcast_to(self.values.reshape(len(self.tasks), -1), self.z.shape[:2]).ravel()


@dataclass(frozen=True)
class Episode:
    """A held-out episode of somebody's log, and what the policy adapted to its task would have done at every row."""

    task: str
    steps: Array  # [N]
    logged: Array
    """Actions in the log's units, [N, A]."""
    own: Array
    """The policy's at the same observations."""
    far: Array
    """Distance of observation and the policy's action to the nearest row of the training tasks' logs, [N]."""
    far_logged: Array
    """The same with the logged action."""


@dataclass(frozen=True)
class Rollouts:
    """One episode of the adapted policy in every test task."""

    family: str
    tasks: tuple[Task, ...]
    label: str
    values: Array  # [T]
    states: Array  # [T, horizon + 1, state]
    lengths: Array
    """Steps until the episode ended, [T]."""
    returns: Array  # [T]
    film: list[tuple[int, list[tuple[int, Array]]]]
    """Task, then steps and pictures; for bodies alone."""
    film_note: str = ""


@dataclass(frozen=True)
class Probe:
    """All of it, with a sentence where something could not be had."""

    embedding: Embedding | None
    embedding_note: str
    rollouts: Rollouts | None
    rollouts_note: str
    episodes: tuple[Episode, ...] = ()


def probe(facts: RunFacts, trust: Collection[str] = (), color: str | None = None) -> Probe:
    """Look at a run; what cannot be had is a sentence, not an error."""
    if facts.dataset is None:
        return Probe(None, facts.data_note, None, facts.data_note)
    if facts.step == 0:
        note = "There is no checkpoint yet."
        return Probe(None, note, None, note)
    dataset = facts.dataset
    try:
        trained = Model(facts.run, trust=trust)
        view = dataset.level(facts.config.level)
    except OmrlError as error:
        return Probe(None, str(error), None, str(error))
    embedding, embedding_note = _tried(lambda: embed(trained, view, color))
    if view.family is None:
        episodes, note = _tried(lambda: beside_the_log(trained, view))
        return Probe(embedding, embedding_note, None, note, episodes or ())
    rollouts, rollouts_note = _tried(lambda: roll_out(trained, view))
    return Probe(embedding, embedding_note, rollouts, rollouts_note)


def _tried(look: Callable[[], T]) -> tuple[T | None, str]:
    try:
        return look(), ""
    except OmrlError as error:
        return None, str(error)


def embed(trained: Model, view: MetaDataset, color: str | None = None) -> Embedding:
    """Test tasks first, then training tasks, until there are enough."""
    train = view.split["train"]
    names = list(dict.fromkeys((*view.split["test"], *train)))[:TASKS]
    shown, context, params = view.select(names), Evaluate.context, trained.params(LEARNER)
    codes, column, of_column = [], colourings(view).get(color or ""), []
    for t in range(len(names)):
        rows = shown.sample(t, DRAWS * context, np.random.default_rng([SEED, 5, t]))
        flat = trained.contexts(rows)
        with torch.no_grad():
            codes.append(trained.algorithm.infer(params, flat.view(DRAWS, context, -1)).cpu().numpy())
        if column is not None and column[0] != "params":
            values = np.asarray(rows[column[0]], dtype=np.float64).reshape(DRAWS, context, -1)
            of_column.append(values[:, :, column[1]].mean(1))
    z = np.stack(codes).astype(np.float64)  # [T, D, l]
    points, width = z.reshape(-1, z.shape[-1]), z.shape[-1]
    if width > 3:
        axes, found = principal_components(points, 3)
        shares: Array | None = found
    else:
        axes, shares = np.pad(points, ((0, 0), (0, 3 - width))), None
    same, different = pair_distances(z, np.random.default_rng(SEED))
    label, values = task_values(shown.tasks)
    if of_column:
        label, values = f"{color}, mean of the context", np.stack(of_column)
    elif column is not None:
        numbers: list[Any] = [task.params[str(color)] for task in shown.tasks]
        label, values = str(color), np.array(numbers, dtype=np.float64)
    table = embeddings(trained, view.select(train), context, SEED) if len(train) > 1 else {"esr": [], "rms": []}
    return Embedding(
        tasks=shown.tasks,
        unseen=tuple(name not in train for name in names),
        label=label,
        values=values,
        context=context,
        z=z,
        axes=axes,
        shares=shares,
        flat=tsne(points),
        same=same,
        different=different,
        **table,
    )


def beside_the_log(trained: Model, view: MetaDataset) -> tuple[Episode, ...]:
    """The longest held-out episodes of tasks that are known by rows of others, as `omrl evaluate` knows them."""
    names = (view.split["test"] or view.split["train"])[:EPISODES]
    log = view.select([name for name in view.split["train"] if name not in names] or view.split["train"])
    rng = np.random.default_rng([SEED, 6])
    each = max(LIKE_ROWS // len(log.tasks), 1)
    parts = [log.sample(t, each, rng) for t in range(len(log.tasks))]
    rows = {name: np.concatenate([part[name] for part in parts]) for name in ("observations", "actions")}
    # Actions count as much as observations do: by the spread of the log's own.
    spread = _unit(trained, rows["actions"]).std(0)
    spread = np.where(spread > 0, spread, 1.0)

    def placed(obs: Array, unit: Array) -> torch.Tensor:
        scaled = trained.normalise(torch.from_numpy(np.array(obs)).to(trained.population.device)).cpu()
        return torch.cat([scaled, torch.from_numpy(unit / spread).to(scaled)], dim=1)

    like = placed(rows["observations"], _unit(trained, rows["actions"]))
    found = []
    for t, name in enumerate(names):
        of_task = view.rows(name)
        draw = np.random.default_rng([SEED, 5, t])
        known, held = halves(of_task["episode"], draw)
        if not len(known):
            continue
        context = known[draw.integers(len(known), size=Evaluate.context)]
        episode = of_task["episode"][held]
        numbers, lengths = np.unique(episode, return_counts=True)
        shown = held[episode == numbers[lengths.argmax()]][:EPISODE_ROWS]
        policy = trained.adapt({key: of_task[key][context] for key in CONTEXT}, on_strange="ignore")
        obs, acts = of_task["observations"][shown], of_task["actions"][shown]
        own, choices = policy.act(obs), trained.run.config.choices
        if choices is not None:  # words cannot be drawn: their places among the choices can
            own = as_numbers(own, "actions", choices)
        far, far_logged = (
            torch.cdist(placed(obs, _unit(trained, actions)), like).min(1).values.numpy() for actions in (own, acts)
        )
        found.append(Episode(name, of_task["step"][shown], np.array(acts), own, far, far_logged))
    return tuple(found)


def _unit(trained: Model, actions: Array) -> Array:
    unit = np.array(actions, np.float32)
    to_unit(unit, trained.action_low, trained.action_high)
    return unit


def roll_out(trained: Model, view: MetaDataset) -> Rollouts:
    """The first episode that `omrl evaluate` scores, of one learner, with the way that it took."""
    family = get_family(view.family or "")
    names = view.split["test"][:TASKS]
    if not names:
        raise OmrlError("This dataset has no test tasks.")
    view = view.select(names)
    tasks = view.tasks
    z = infer_tasks(trained, view, Evaluate.context, SEED)[LEARNER]
    simulator = family.simulator(tasks)
    simulator.reset(np.arange(len(tasks)), [np.random.default_rng([SEED, 4, t, 0]) for t in range(len(tasks))])
    params = trained.params(LEARNER)
    states, returns = [simulator.get_state()], np.zeros(len(tasks))
    running, lengths = np.ones(len(tasks), dtype=bool), np.zeros(len(tasks), dtype=int)
    for _ in range(family.horizon):
        obs = trained.normalise(torch.from_numpy(simulator.observe()).to(z.device))
        with torch.no_grad():
            actions = trained.algorithm.act(params, obs, z)
        step = simulator.step(actions.cpu().numpy())
        returns += step.rewards * running
        lengths += running
        running &= ~step.terminations
        states.append(simulator.get_state())
    label, values = task_values(tasks)
    ways = np.stack(states, axis=1)
    film, note = [], ""
    if "point-robot" not in family.name:
        chosen = np.argsort(values)[np.linspace(0, len(tasks) - 1, min(FILM_TASKS, len(tasks))).round().astype(int)]
        try:
            film = [(int(t), _film(simulator, int(t), ways[t], int(lengths[t]))) for t in chosen]
        except OmrlError as error:
            note = f"There is no film strip: {error}"
    simulator.close()
    return Rollouts(family.name, tasks, label, values, ways, lengths, returns, film, note)


def _film(simulator: Any, task: int, states: Array, length: int) -> list[tuple[int, Array]]:
    """Pictures of an episode at equal distances in time."""
    painter = simulator.painter(task)
    steps = np.linspace(0, length, FILM_FRAMES).round().astype(int)
    pictures = [(int(step), _reduced(painter.paint([states[step]]))) for step in steps]
    painter.close()
    return pictures


def _reduced(picture: Array) -> Array:
    """A picture without its upper and lower edge at half its size, by the mean of four pixels."""
    height, width, _ = picture.shape
    cut = picture[height // 12 : height - height // 12]
    half = cut[: len(cut) // 2 * 2, : width // 2 * 2].astype(np.float64)
    mean = (half[::2, ::2] + half[1::2, ::2] + half[::2, 1::2] + half[1::2, 1::2]) / 4
    return np.round(mean).astype(np.uint8)
