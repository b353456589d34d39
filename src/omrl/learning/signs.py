"""What a person should know before, while and after a run learns: one plain sentence each, with what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from omrl.algorithms import OWN_LOGS
from omrl.algorithms.focal import distance_metric_loss
from omrl.commands.evaluate import CONTEXT_ROWS
from omrl.data import MetaDataset
from omrl.evaluation.logged import logged
from omrl.learning.duration import expected_seconds
from omrl.runs.config import RunConfig
from omrl.runs.model import Model
from omrl.words import quantity

# A critic whose mean value passes this is no longer learning values of rewards that a person would write down.
LARGE_Q = 1e6
# The same where the rewards are known: so many times what the best of them would add up to for ever.
TIMES_POSSIBLE = 2.0
# A policy whose actions lie at their bounds this much more often than the logged ones is stuck there: tanh is flat.
SATURATED_SHARE = 0.5
# An encoder whose loss is this much of the largest possible one gives all tasks the same z; so many updates are time
# enough to tell them apart.
NEARLY, TIME_TO_TELL = 0.99, 1_000
# A closed-form divergence as large as this is no neighbourhood of the log any more, in nats.
FAR_AWAY = 20.0
# Of the way from chance to certainty, what an encoder should have gone that tells tasks apart.
TOLD_APART = 0.2
# An error this many times the log's own noise is that of a policy which is about one standard deviation of it away.
WITHIN_NOISE = 1.5
# Tasks that are looked at after training.
TASKS = 24


def before(config: RunConfig, view: MetaDataset) -> list[str]:
    """Of what is about to be learnt from these training tasks."""
    shown = sum(view.count(task.name) for task in view.tasks)
    used = sum(view.count(task.name, config.max_rows) for task in view.tasks)
    found = []
    if used < shown:
        found.append(
            f"warning: {shown - used:,} of {shown:,} rows are left out, as --max-rows is {config.max_rows:,} for each "
            "task; whole episodes are drawn at random."
        )
    warm_up = config.hyperparameters.get("warm_up", 0)
    if warm_up >= config.steps:
        found.append(
            f"warning: the policy will only imitate, as --warm-up is {warm_up:,} and there are {config.steps:,} "
            "updates; a smaller --warm-up lets it improve on the log."
        )
    seconds = expected_seconds(config, len(view.tasks), view.manifest.varies) if config.preset == OWN_LOGS else None
    if seconds is not None:
        where = "two idle cores" if config.cpu else "a large GPU"
        found.append(
            f"{config.algorithm} learns from {used:,} rows of {quantity(len(view.tasks), 'task')}: {config.steps:,} "
            f"updates of {quantity(config.seeds, 'seed')}, {_duration(seconds)} on {where}."
        )
    return found


def _duration(seconds: float) -> str:
    minutes, hours = round(seconds / 60), round(seconds / 3_600)
    if minutes >= 120:
        return f"about {quantity(hours, 'hour')}"
    return f"about {quantity(minutes, 'minute')}" if minutes else "less than a minute"


def largest_value(hyperparameters: Mapping[str, object], largest_reward: float) -> float | None:
    """What the largest reward would add up to for ever, as critics see it; None where they do not discount."""
    scale, gamma = hyperparameters.get("reward_scale", 1.0), hyperparameters.get("gamma", 1.0)
    if not isinstance(scale, float) or not isinstance(gamma, float) or gamma >= 1.0 or largest_reward == 0.0:
        return None
    return scale * largest_reward / (1.0 - gamma)


def loss_in_one_place(hyperparameters: Mapping[str, object]) -> float | None:
    """The distance-metric loss of an encoder that gives all tasks the same z; None where others may be as large."""
    deterministic, power = hyperparameters.get("encoder") == "deterministic", hyperparameters.get("power")
    if not deterministic or power not in ("inverse-square", "inverse"):
        return None
    same: Any = (torch.zeros(2, 1), torch.zeros(2, 1), power, hyperparameters["beta"], hyperparameters["epsilon"])
    return float(distance_metric_loss(*same))


def during(
    seeds: Sequence[int],
    values: Mapping[str, Sequence[float]],
    possible: float | None,
    in_one_place: float | None = None,
) -> list[str]:
    """Of an update's metrics by name, one value for each seed.

    `possible` is the largest value that is, `in_one_place` the loss of an encoder that gives all tasks the same z.
    """
    found = [
        f"seed {seed} met a number that is not finite and stopped; its last good state is kept."
        for seed, alive in zip(seeds, values["alive"], strict=True)
        if not alive
    ]
    for seed, q in zip(seeds, values.get("q", ()), strict=False):
        if abs(q) > LARGE_Q:
            found.append(
                f"seed {seed}'s Q has passed {LARGE_Q:.0e}; regularise more, or lower the critic's step size or "
                "the reward's scale, if it should stay bounded."
            )
        elif possible is not None and abs(q) > TIMES_POSSIBLE * possible:
            found.append(
                f"seed {seed}'s Q is larger than any rewards of the log could add up to: it feeds on itself; raise "
                "--alpha, or lower --critic-lr or --tau."
            )
    shares = zip(seeds, values.get("saturated", ()), values.get("saturated_logged", ()), strict=False)
    for seed, share, of_log in shares:
        if share - of_log > SATURATED_SHARE:
            found.append(
                f"seed {seed}'s policy takes extreme actions far more often than the log does, and nothing pulls "
                "it back from there; a smaller step size of the actor may help."
            )
    for seed, loss in zip(seeds, values.get("dml_loss", ()), strict=False):
        if in_one_place is not None and loss > NEARLY * in_one_place:
            found.append(
                f"seed {seed}'s encoder gives all tasks the same embedding. If the log tells them apart, it is stuck "
                "at its bounds, where gradients vanish: leave out --coupled, or lower --dml-lr or --alpha."
            )
    for seed, divergence in zip(seeds, values.get("divergence", ()), strict=False):
        if divergence > FAR_AWAY:
            found.append(
                f"seed {seed}'s policy leaves the data: it is more than {FAR_AWAY:.0f} nats from what was logged; "
                "raise --alpha and --alpha-max, or lower --actor-lr."
            )
    return found


def after(model: Model, view: MetaDataset, seed: int = 0) -> list[str]:
    """Of what was learnt, by the logs of these training tasks alone."""
    names = [task.name for task in view.tasks][:TASKS]
    if min(view.count(name) for name in names) < 2:
        return []
    rows = logged(model, view.select(names), min(CONTEXT_ROWS, model.hyperparameters.context_size), seed)
    mean = {name: np.asarray(values).mean(1) for name, values in rows.items()}
    found, nearer = [], _nearer(model.run.config.hyperparameters)
    for place, own in enumerate(model.run.config.all_seeds()):
        told, chance = mean.get("identification"), 1 / len(names)
        if told is not None and told[place] < chance + TOLD_APART * (1 - chance):
            found.append(
                f"seed {own} tells tasks apart in {told[place]:.0%} of contexts, and guessing would in {chance:.0%}: "
                "its policy hardly adapts. More rows in a context (--context-size), next observations in it where "
                "dynamics differ, or more updates may help; or the log does not tell its tasks apart."
            )
        # A policy that improves on an unsteady hand stays within what that hand tried, and is not where it was usually.
        allowed = max(mean["constant_error"][place], WITHIN_NOISE * mean["noise_floor"][place])
        if mean["action_error"][place] > allowed:
            found.append(
                f"seed {own}'s actions are further from the logged ones than one and the same action would be, and "
                f"than the log's own noise explains: its policy leaves the data. {nearer}; omrl evaluate shows these "
                "numbers."
            )
    return found


def _nearer(hyperparameters: Mapping[str, object]) -> str:
    """What keeps a policy nearer to the log."""
    if "alpha" not in hyperparameters:
        return "More updates (--steps) may help"
    if hyperparameters.get("regularisation") == "none":
        return "Nothing holds it back: give --regularisation policy"
    return "Raise --alpha, or lower --target-divergence"
