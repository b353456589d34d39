"""Runs of every algorithm on logs with units of their own, for what is done with a policy after training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import omrl
from omrl.data import MetaDataset
from training_helpers import SMALL

SIZES = {name: SMALL[name] for name in ("encoder_hidden", "latent_dim", "batch_size", "context_size", "meta_batch")}
CHOOSING = {"actor_hidden": (8, 8), "critic_hidden": (8, 8)}
TEACHERS = {"teacher_hidden": (8,), "teacher_vae_hidden": (8,), "reward_hidden": (8,), "next_obs_hidden": (8,)}
STAGES = {"teacher_steps": 2, "reward_steps": 2, "next_obs_steps": 2, "members": 2}
# Every built-in algorithm, and every kind of encoder.
KINDS = {
    "focal": ("focal", {"hidden": (8, 8)}),
    "focal-probabilistic": ("focal", {"hidden": (8, 8), "encoder": "probabilistic"}),
    "focal-without-next": ("focal", {"hidden": (8, 8), "next_obs_in_context": False}),
    "batch-pearl": ("batch-pearl", {"hidden": (8, 8)}),
    "contextual-bcq": ("contextual-bcq", {**CHOOSING, "vae_hidden": (8, 8)}),
    "mbml": ("mbml", {**CHOOSING, "decoder_hidden": (8, 8), **TEACHERS, **STAGES}),
    "contextual-bc": ("contextual-bc", {"hidden": (8, 8)}),
}


def boilers(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """Logs whose units are far from those of networks: what an export forgets of them is seen."""
    rng, rows, logs = np.random.default_rng(0), 40, {}
    for i in range(3):
        obs, next_obs = (np.array([350.0, 0.02, -5.0]) + [40.0, 0.01, 3.0] * rng.normal(size=(rows, 3)) for _ in "ab")
        logs[f"boiler-{i}"] = {
            "observations": obs,
            "actions": rng.uniform([0.0, -3.0], [100.0, 1.0], (rows, 2)),
            "rewards": i + rng.normal(size=rows),
            "next_observations": next_obs,
            "terminations": np.zeros(rows, dtype=bool),
            "truncations": np.arange(rows) == rows - 1,
            "episode": np.zeros(rows, dtype=int),
            "step": np.arange(rows),
        }
    bounds = {"action_low": [0, -3], "action_high": [100, 1]}
    split = {"train": ["boiler-0", "boiler-1"], "test": ["boiler-2"]}
    MetaDataset.from_arrays(logs, **bounds, varies="both", split=split).save(folder)
    return logs


def trained(kind: str, data: Path, out: Path) -> Path:
    """A run whose actions fill their range: weights of a few updates are small, and all actions would be alike."""
    algorithm, sizes = KINDS[kind]
    run = omrl.train(algorithm, data, out, **SIZES, **sizes, seeds=2, steps=2, eval_every=0, device="cpu")
    step, state = run.load()
    state["params"] += 0.5 * torch.randn(state["params"].shape, generator=torch.Generator().manual_seed(1))
    run.save(step + 1, state)
    return run.folder
