"""How behaviour agents are trained: configurations and the families' presets. Needs no torch, so `--help` is quick."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from typing import Any

from omrl.errors import OmrlError
from omrl.families import TaskFamily


@dataclass(frozen=True)
class SACConfig:
    """Hyperparameters of the behaviour agents."""

    actor_hidden: tuple[int, ...] = (128, 128)
    """Widths of the actor's layers; small, because the policies are published."""
    critic_hidden: tuple[int, ...] = (256, 256)
    """Widths of the critics' layers."""
    bfloat16: bool = False
    """Networks compute in bfloat16 while they learn: faster on a GPU. Weights keep single precision."""
    batch_size: int = 256
    """Transitions per update and agent."""
    gamma: float = 0.99
    """Discount."""
    tau: float = 0.005
    """Step of the target critics towards the critics."""
    learning_rate: float = 3e-4
    """Adam step size of actor and critics."""
    temperature_learning_rate: float = 3e-4
    """Adam step size of the log temperature."""
    initial_temperature: float = 0.1
    """Entropy coefficient at the start; it is learned."""
    target_entropy: float = -1.0
    """Entropy per action dimension that the temperature aims for."""
    reward_scale: float = 1.0
    """Factor on the reward in the critics' target."""
    ignored_observations: tuple[int, ...] = ()
    """Observation entries the agents do not see, such as a world position that no reward depends on."""

    def check(self, obs_dim: int) -> None:
        """Refuse what nothing can be learnt with."""
        for name, value in vars(self).items():
            flag = f"--{name.replace('_', '-')}"
            if name.endswith("hidden") and min(value, default=1) < 1:
                raise OmrlError(f"{flag} must be layers of at least 1, not {value}.")
            if name in ("gamma", "tau") and not 0 <= value <= 1:
                raise OmrlError(f"{flag} must lie between 0 and 1, not {value}.")
            if (name.endswith("rate") or name in ("initial_temperature", "reward_scale")) and not 0 < value < math.inf:
                raise OmrlError(f"{flag} must be above 0, not {value}.")
        if self.batch_size < 1:
            raise OmrlError(f"--batch-size must be at least 1, not {self.batch_size}.")
        if not math.isfinite(self.target_entropy):
            raise OmrlError(f"--target-entropy must be finite, not {self.target_entropy}.")
        if any(not 0 <= entry < obs_dim for entry in self.ignored_observations):
            raise OmrlError(f"--ignored-observations must lie between 0 and {obs_dim - 1}.")


@dataclass(frozen=True)
class AgentsConfig:
    """How the behaviour agents of a family are trained."""

    steps: int = 200_000
    """Environment steps of each agent."""
    checkpoints: tuple[int, ...] = (0, 100_000, 200_000)
    """Steps at which the policies are kept; 0 is the untrained policy, which is never logged but scored."""
    envs_per_task: int = 4
    """Environments of one task stepped together, all by the same agent."""
    episode_steps: int = 200
    """Length of training episodes."""
    random_steps: int = 2_000
    """First steps of each agent, with uniformly random actions and no updates."""
    updates_per_step: float = 1.0
    """Updates of each agent per environment step of it."""
    different_starts: bool = False
    """Start every agent from weights of its own instead of the same for all tasks."""
    seed: int = 0
    """Seed of everything: weights, actions, resets, logged episodes."""
    sac: SACConfig = field(default_factory=SACConfig)
    """The algorithm's own hyperparameters."""

    def check(self, obs_dim: int) -> None:
        """Refuse what cannot be trained; not while flags are read one by one, whose values need not fit yet."""
        self.sac.check(obs_dim)
        for name in ("steps", "envs_per_task", "episode_steps"):
            if getattr(self, name) < 1:
                raise OmrlError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(self, name)}.")
        for name in ("random_steps", "updates_per_step"):
            if getattr(self, name) < 0:
                raise OmrlError(f"--{name.replace('_', '-')} cannot be negative, as {getattr(self, name)} is.")
        if not 0 <= self.seed < 2**63:
            raise OmrlError(f"--seed must be 0 or more and under 2^63, not {self.seed}.")
        if any(step % self.envs_per_task for step in (self.steps, *self.checkpoints)):
            raise OmrlError(
                f"Steps and checkpoints must be multiples of the {self.envs_per_task} environments per task."
            )
        if not self.checkpoints or min(self.checkpoints) < 0 or max(self.checkpoints) > self.steps:
            raise OmrlError(f"Checkpoints must lie between 0 and the {self.steps} steps of training.")
        if max(self.checkpoints) == 0:
            raise OmrlError("There must be a checkpoint after step 0: the untrained policy is never logged.")


@dataclass(frozen=True)
class Preset:
    """What behaviour/presets.toml says of a family's behaviour data."""

    agents: AgentsConfig
    """How its agents are trained."""
    episodes: int
    """Full-length episodes that each checkpoint logs of each task."""
    levels: Mapping[str, int]
    """The checkpoint of each quality level, fixed before anything was trained."""


def preset(family: TaskFamily, schedule: str = "default") -> Preset:
    """A family's configuration from the file beside this one."""
    text = resources.files("omrl.behaviour").joinpath("presets.toml").read_text()
    tables = tomllib.loads(text)
    if family.name not in tables:
        raise OmrlError(f"omrl trains no agents for {family.name}: log it by policies of your own.")
    table: dict[str, Any] = tables[family.name]
    schedules: dict[str, dict[str, Any]] = {"default": {}, "paper": table.pop("paper")}
    if schedule not in schedules:
        raise OmrlError(f"There is no schedule {schedule!r}; there are {' and '.join(schedules)}.")
    table |= schedules[schedule]
    if isinstance(spacing := table["checkpoints"], dict):
        table["checkpoints"] = [0, *range(spacing["first"], spacing["last"] + 1, spacing["every"])]
    episodes: int = table.pop("episodes")
    levels: dict[str, int] = table.pop("levels")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    own = {f.name for f in fields(AgentsConfig)}
    sac = SACConfig(**{key: value for key, value in values.items() if key not in own})
    agents = AgentsConfig(**{key: value for key, value in values.items() if key in own}, sac=sac)
    return Preset(agents, episodes, levels)
