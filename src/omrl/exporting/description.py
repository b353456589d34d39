"""What an exported policy says of itself."""

from __future__ import annotations

import omrl
from omrl.runs.model import Model


def describe(model: Model, seed: int) -> dict[str, object]:
    """Where it comes from, and what goes in and out."""
    return {
        "omrl": omrl.__version__,
        "algorithm": model.run.config.algorithm,
        "seed": model.run.config.seed + seed,
        "updates": model.step,
        "observation_dim": model.obs_dim,
        "action_dim": model.act_dim,
        "latent_dim": model.hyperparameters.latent_dim,
        "columns": model.run.config.columns,
        "choices": model.run.config.choices,
    }
