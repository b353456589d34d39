"""Train one SAC agent per task, all at once: a population of learners over one batched simulator.

One round of the loop steps every environment once and updates every agent. On a GPU the updates of a round run while
the CPU simulates: actions are queued first, the updates after them, and the transitions of the round reach the replay
memory behind the updates. The order of the data is the same on every device, so a run depends on its seed alone.

Work that is interrupted goes on from its last save. The replay memory is saved as append-only chunks, so that a save
costs what was added since the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from omrl.behaviour.config import AgentsConfig
from omrl.behaviour.policies import Array, to_half
from omrl.behaviour.sac import build
from omrl.errors import OmrlError
from omrl.families import Task, TaskFamily
from omrl.learning.engine import Batch, Population
from omrl.learning.loop import learn
from omrl.runs.checkpoints import check_fits, load_checkpoint, save_checkpoint

SAVE_SECONDS = 60.0
# What to do about work that is damaged.
AGAIN = "; delete its folder to begin again"
REPORT_ROUNDS = 50
# Arrays of a Trainer that a save holds beside population, simulator and replay memory.
EPISODES = ("episode", "episode_step", "episode_return", "recent_return")


class Replay:
    """Transitions of every agent on the device, [P, capacity, width]: obs, act, rew, term, next_obs side by side."""

    def __init__(self, agents: int, capacity: int, obs_dim: int, act_dim: int, device: torch.device) -> None:
        self.widths = [obs_dim, act_dim, 1, 1, obs_dim]
        self.rows = torch.zeros(agents, capacity, sum(self.widths), device=device)
        # On the device, so that a captured graph samples from what is there at replay time.
        self.filled = torch.zeros((), device=device)
        self.count = 0

    def add(self, rows: Tensor) -> None:
        """Append [P, k, width]."""
        self.rows[:, self.count : self.count + rows.shape[1]] = rows.to(self.rows.device, non_blocking=True)
        self.count += rows.shape[1]
        self.filled.fill_(self.count)

    def draw(self, generator: torch.Generator, batch_size: int) -> Batch:
        """Uniform with replacement: dict of [P, B, ...]."""
        agents, _, width = self.rows.shape
        uniform = torch.rand(agents, batch_size, 1, generator=generator, device=self.rows.device)
        index = (uniform * self.filled).long().expand(-1, -1, width)
        obs, act, rew, term, next_obs = torch.split(torch.gather(self.rows, 1, index), self.widths, dim=-1)
        return {"obs": obs, "act": act, "rew": rew.squeeze(-1), "term": term.squeeze(-1), "next_obs": next_obs}


class Trainer:
    """The agents of `train`, with everything that a save must hold as its state."""

    def __init__(
        self, family: TaskFamily, tasks: Sequence[Task], config: AgentsConfig, device: str, work: Path, first: int = 0
    ) -> None:
        """`first` is the place of the first task where these are a part of more, which has other random numbers."""
        config.check(family.obs_dim)
        self.family, self.tasks, self.config, self.work, self.first = family, tasks, config, work, first
        self.agents, self.envs = len(tasks), config.envs_per_task
        seeds = [config.seed + (first + i if config.different_starts else 0) for i in range(self.agents)]
        learners, self.sac = build(family.obs_dim, family.act_dim, config.sac, seeds)
        self.population = Population(
            learners,
            self.sac.loss,
            learning_rate={
                "": config.sac.learning_rate,
                "log_temperature": config.sac.temperature_learning_rate,
            },
            targets=["critic"],
            tau=config.sac.tau,
            seed=config.seed + first,
            device=device,
            bfloat16=config.sac.bfloat16,
        )
        self.device = self.population.device
        self.replay = Replay(self.agents, config.steps, family.obs_dim, family.act_dim, self.device)
        self._seen = torch.ones(family.obs_dim)
        self._seen[list(config.sac.ignored_observations)] = 0.0
        total = self.agents * self.envs
        self.simulator = family.simulator([task for task in tasks for _ in range(self.envs)])
        self.round = 0
        self.update_debt = 0.0
        self.saved_chunks = 0
        self._saved_rows = 0
        self._finished: list[tuple[int, float, float]] = []
        self.episode = np.zeros(total, dtype=np.int64)
        self.episode_step = np.zeros(total, dtype=np.int64)
        self.episode_return = np.zeros(total)
        self.recent_return = np.full(self.agents, np.nan)
        self._reset(np.arange(total))

    # -- one round ---------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Environment steps of each agent so far."""
        return self.round * self.envs

    def update(self) -> None:
        """A round: act, update while simulating, remember."""
        config = self.config
        obs = torch.from_numpy(self.simulator.observe()).view(self.agents, self.envs, -1) * self._seen
        actions = self._choose(obs)
        if self.step >= config.random_steps and self.replay.count:
            self.update_debt += config.updates_per_step * self.envs
            while self.update_debt >= 1.0:
                self.population.step(self._draw)
                self.update_debt -= 1.0
        act = actions()
        step = self.simulator.step(act.reshape(self.agents * self.envs, -1).numpy())
        reward = step.extras.get("rewards_dense", step.rewards)
        self._remember(obs, act, reward, step.terminations, step.obs)
        self._end_episodes(step.rewards, step.terminations)
        self.round += 1

    def _choose(self, obs: Tensor) -> Any:
        """Queue the actions; the returned function waits for them and nothing else."""
        generator = self.population.generator
        shape = (self.agents, self.envs, self.family.act_dim)
        if self.step < self.config.random_steps:
            actions = torch.rand(shape, generator=generator, device=self.device) * 2.0 - 1.0
        else:
            noise = torch.randn(shape, generator=generator, device=self.device)
            with torch.no_grad():
                # Stacked weights [P, in, out] meet observations [P, E, in]: no vmap is needed to act.
                actions, _ = self.sac.act(self.population.params, obs.to(self.device), noise)
                # An agent whose weights blew up must not stop the others; its next update freezes it.
                actions = torch.nan_to_num(actions)
        if self.device.type != "cuda":
            return lambda: actions
        host = torch.empty(shape, pin_memory=True)
        host.copy_(actions, non_blocking=True)
        ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
        ready.record()

        def wait() -> Tensor:
            ready.synchronize()
            return host

        return wait

    def _draw(self, generator: torch.Generator) -> tuple[Batch, Batch]:
        batch_size = self.config.sac.batch_size
        batch = self.replay.draw(generator, batch_size)
        shape = (self.agents, batch_size, self.family.act_dim)
        noise = {name: torch.randn(shape, generator=generator, device=self.device) for name in ("act", "next_act")}
        return batch, noise

    def _remember(self, obs: Tensor, act: Tensor, rew: Array, term: Array, next_obs: Array) -> None:
        shape = (self.agents, self.envs, -1)
        rows = torch.cat(
            [
                obs,
                act,
                torch.from_numpy(rew).view(shape),
                torch.from_numpy(term.astype(np.float32)).view(shape),
                torch.from_numpy(next_obs).view(shape) * self._seen,
            ],
            dim=-1,
        )
        self.replay.add(rows.pin_memory() if self.device.type == "cuda" else rows)

    def _end_episodes(self, rewards: Array, terminations: Array) -> None:
        """Score what ended, at the family's horizon, and start it again."""
        self.episode_return += np.where(self.episode_step < self.family.horizon, rewards, 0.0)
        self.episode_step += 1
        ended = np.flatnonzero(terminations | (self.episode_step >= self.config.episode_steps))
        if not ended.size:
            return
        for env in ended:
            task = int(env) // self.envs
            self.recent_return[task] = self.episode_return[env]
            self._finished.append((task, self.step + self.envs, float(self.episode_return[env])))
        self.episode[ended] += 1
        self._reset(ended)

    def _reset(self, which: Array) -> None:
        # A fresh generator per environment and episode: nothing to save, and no draw depends on another environment.
        first_env = self.first * self.envs
        generators = [
            np.random.default_rng([self.config.seed, 0, first_env + int(env), int(self.episode[env])]) for env in which
        ]
        self.simulator.reset(which, generators)
        self.episode_step[which] = 0
        self.episode_return[which] = 0.0

    def weights(self) -> dict[str, Array]:
        """All agents' actor weights, blind to the observations that the agents ignore."""
        params = {
            name.removeprefix("actor."): value.detach().cpu().numpy().copy()
            for name, value in self.population.params.items()
            if name.startswith("actor.")
        }
        params["weight.0"] *= self._seen.numpy()[None, :, None]
        return params

    def actor(self) -> dict[str, Array]:
        """The same as they are stored."""
        return to_half(self.weights(), shared=shares_weights(self.config, self.step))

    def reached(self) -> None:
        """Keep the actors of a checkpoint."""
        if self.step in self.config.checkpoints:
            actor = {name: torch.from_numpy(weights) for name, weights in self.actor().items()}
            save_checkpoint(snapshot(self.work, self.step), actor, {"step": self.step})

    def log(self) -> str:
        """Nothing is written: returns are kept with each save."""
        recent = self.recent_return[~np.isnan(self.recent_return)]
        return f"return mean {recent.mean():.2f} worst {recent.min():.2f}" if recent.size else ""

    # -- saving and going on -----------------------------------------------------------------------------------------

    def save(self) -> None:
        """Append the new part of the replay memory, then replace the state."""
        new = self.replay.rows[:, self._saved_rows : self.replay.count].cpu()
        returns = torch.tensor(self._finished, dtype=torch.float64).reshape(-1, 3)
        save_checkpoint(self._chunk(self.saved_chunks), {"rows": new, "returns": returns}, {"step": self.step})
        self.saved_chunks += 1
        self._saved_rows = self.replay.count
        self._finished = []
        counters = {"step": self.step, "round": self.round, "saved_chunks": self.saved_chunks}
        save_checkpoint(self.work / "state.safetensors", self._state(), counters)

    def resume(self) -> None:
        """Go on from the last save, if there is one."""
        path = self.work / "state.safetensors"
        if not path.exists():
            return
        state, counters = load_checkpoint(path, AGAIN)
        wanted = self._state()
        if "generator" in state and state["generator"].shape != wanted["generator"].shape:
            raise OmrlError(f"{self.work} was begun on another kind of device; go on with that one, or delete it.")
        check_fits(state, wanted, path, AGAIN)
        self.population.load_state(state)
        for name in EPISODES:
            getattr(self, name)[:] = state[name].numpy()
        self.simulator.set_state(state["simulator"].numpy())
        self.round, self.saved_chunks = counters["round"], counters["saved_chunks"]
        self.update_debt = float(state["update_debt"])
        for i in range(self.saved_chunks):
            self.replay.add(load_checkpoint(self._chunk(i), AGAIN)[0]["rows"])
        self._saved_rows = self.replay.count

    def _state(self) -> dict[str, Tensor]:
        """All that going on needs beside the replay memory."""
        own = {name: torch.from_numpy(getattr(self, name)) for name in EPISODES}
        own["simulator"] = torch.from_numpy(self.simulator.get_state())
        return {**self.population.state(), **own, "update_debt": torch.tensor(self.update_debt, dtype=torch.float64)}

    def _chunk(self, i: int) -> Path:
        return self.work / f"replay-{i:05d}.safetensors"

    def returns(self) -> Array:
        """Every finished training episode as (task, step, return), in order; call after `save`."""
        parts = [load_checkpoint(self._chunk(i), AGAIN)[0]["returns"].numpy() for i in range(self.saved_chunks)]
        return np.concatenate(parts)


def train(
    family: TaskFamily, tasks: Sequence[Task], config: AgentsConfig, device: str, work: Path, first: int = 0
) -> tuple[Mapping[int, Mapping[str, Array]], Array]:
    """Actor weights of every checkpoint and the returns of all training episodes; goes on where `work` left off."""
    trainer = Trainer(family, tasks, config, device, work, first)
    trainer.resume()
    learn(
        trainer,
        config.steps,
        folder=work,
        label=f"training {len(tasks)} agents",
        log_every=REPORT_ROUNDS * trainer.envs,
        save_seconds=SAVE_SECONDS,
        unit="step",
        at_once=len(tasks),
    )
    trainer.simulator.close()
    failed = [task.name for task, alive in zip(tasks, trainer.population.alive.tolist(), strict=True) if not alive]
    if failed:
        raise OmrlError(f"The agents of {', '.join(failed)} diverged; lower the learning rate.")
    checkpoints = {step: load_checkpoint(snapshot(work, step), AGAIN)[0] for step in config.checkpoints}
    return {step: {k: v.numpy() for k, v in w.items()} for step, w in checkpoints.items()}, trainer.returns()


def shares_weights(config: AgentsConfig, step: int) -> bool:
    """Whether all agents still are the same one."""
    return not config.different_starts and step <= config.random_steps


def snapshot(work: Path, step: int) -> Path:
    """Where the actors of a checkpoint are kept while the agents train."""
    return work / f"actors-{step:07d}.safetensors"
