"""What an algorithm is. Read this before writing one; docs/own-algorithm.md has a complete example.

An algorithm is a class that states one update for ONE learner as a pure function, and says how to infer a task and act
in it. Everything else (stacking seeds, sampling, optimiser, checkpoints, evaluation, adapting, the report) comes from
omrl. Shapes below: P learners, M tasks, B rows, C context transitions, l numbers in a task's embedding z.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import torch
from torch import Tensor, nn

from omrl.errors import OmrlError
from omrl.learning.engine import Batch, Info, Loss, Params
from omrl.schema import Size, settings
from omrl.words import shortened


@settings
class MetaConfig:
    """Hyperparameters that every algorithm has; each field is a flag, and its docstring is the flag's help."""

    latent_dim: Size = 20
    """Length of the task embedding [l]."""
    bfloat16: bool = False
    """Networks compute in bfloat16 while they learn: faster on a GPU. Weights keep single precision."""
    meta_batch: Size = 16
    """Tasks in a batch [M]."""
    batch_size: Size = 256
    """Transitions per task for all but the context."""
    context_size: Size = 100
    """Transitions per context set."""


@dataclass(frozen=True)
class BatchSpec:
    """What an update reads: the sampler draws this and nothing else.

    A batch always has obs, act, rew, next_obs, term [M, B, ...], context [M, sets, C, (s, a, r, s')] and task [M], the
    number of each task among the training tasks.
    """

    context_sets: int = 1
    """Independent context sets of each task."""
    consecutive: bool = False
    """Whether the transitions of a context follow one another in an episode, or are drawn one by one."""
    next_actions: bool = False
    """Also next_act and has_next: the action logged after each row, and 1.0 where there is one."""
    dense_rewards: bool = False
    """Also rew_dense: the log's second, dense reward."""
    other_tasks: bool = False
    """Also rows of another training task for each task: other.obs, other.act, other.rew, other.next_obs, other.term."""


@dataclass(frozen=True)
class Stage:
    """What one learner per seed and task learns before meta-training."""

    name: str
    """Of its folder among the run's stages."""
    build: Callable[[torch.Generator], nn.Module]
    """One learner's networks."""
    loss: Loss
    """As the engine takes it; the batch has rows [B, ...] of the learner's own task."""
    noise: Callable[[Batch, torch.Generator], Mapping[str, Tensor]]
    """The random numbers of an update of all learners, for a batch [learners, B, ...]."""
    result: Callable[[Params], Mapping[str, Tensor]]
    """What is kept of the learners' parameters [learners, ...], under the names that meta-training reads."""
    lr: float
    batch_size: int
    steps: int
    targets: tuple[str, ...] = ()
    tau: float = 0.005
    dense_rewards: bool = False
    """Whether the batch has rew_dense too."""


@dataclass(frozen=True)
class Recipe:
    """How z and an action follow from the networks, in words that a program without torch can act on."""

    codes: Literal["mean", "gaussians"]
    """z is the mean of what `encoder` makes of the transitions, or that of the product of a Gaussian for each."""
    squashed: bool
    """Whether tanh bounds the codes; of Gaussians, their means."""
    actions: Literal["gaussian", "candidates", "choices"]
    """`actor` gives mean and spread before tanh; or `vae.decoder` proposes, `actor` perturbs and `critic` chooses; or
    `actor` gives a number for each choice."""
    perturbation: float = 0.0
    """How far a candidate is moved at most."""
    latents: Tensor | None = None
    """What the candidates are decoded from [K, L]."""


C = TypeVar("C", bound=MetaConfig, covariant=True)


class Algorithm(ABC, Generic[C]):
    """Losses of one learner, and what it knows how to do: `infer` a task, `act` in it."""

    Config: ClassVar[type[MetaConfig]]
    """Its hyperparameters: a class of settings. Presets lie in a TOML file of the module's name beside it."""
    Nets: ClassVar[Any]
    """One learner's networks, a module: Nets(obs_dim, act_dim, config, generator)."""
    targets: tuple[str, ...] = ()
    """Children of the networks that have a slowly moving copy, which the loss receives under the same names."""
    plain_descent: tuple[str, ...] = ()
    """Parameters that move by plain gradient descent instead of Adam."""
    has_values: bool = False
    """Whether there is a `q`: evaluation from logs alone reports values then."""

    discrete_actions: bool = False
    """Whether it learns from logs whose actions are choices and no amounts."""

    def __init__(self, nets: nn.Module, config: C) -> None:
        self.nets = nets
        self.config = config

    @classmethod
    def build(
        cls,
        obs_dim: int,
        act_dim: int,
        config: C,  # type: ignore[misc]  # it makes a new one, as __init__ does
        seeds: Sequence[int],
    ) -> tuple[list[nn.Module], Self]:
        """One learner's networks per seed, and the losses they share."""
        _check_nets(cls, obs_dim, act_dim, config)
        nets = [cls.Nets(obs_dim, act_dim, config, torch.Generator().manual_seed(seed)) for seed in seeds]
        algorithm = cls(nets[0], config)
        _check_parts(algorithm)
        return nets, algorithm

    # -- what training asks -----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def learning_rate(self) -> Mapping[str, float]:
        """Adam step size by prefix of the parameters' names; "" is all of them."""

    @property
    def slowing(self) -> float:
        """Share of the updates, at the end, in which Adam's step sizes fall to nothing."""
        return 0.0

    @property
    def tau(self) -> float:
        """Step of the target networks."""
        return 0.0

    @property
    def batch_spec(self) -> BatchSpec:
        """What an update reads."""
        return BatchSpec()

    def noise(self, batch: Batch, generator: torch.Generator) -> Mapping[str, Tensor]:
        """The random numbers of one update of all learners: batch [P, M, B, ...]."""
        return {}

    @property
    def child_steps(self) -> Sequence[tuple[str, Loss]]:
        """Steps of one child of the networks alone, each on a fresh batch, before the step of all."""
        return ()

    @abstractmethod
    def loss(self, params: Params, targets: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Info]:
        """The scalar to descend, and what to log."""

    def stages(self, varies: str) -> Sequence[Stage]:
        """What is learnt before, by one learner per seed and task; `varies` says what differs between tasks."""
        return ()

    # -- what evaluation and users ask ------------------------------------------------------------------------------

    @abstractmethod
    def infer(self, params: Params, context: Tensor) -> Tensor:
        """z [..., l] of contexts [..., C, (s, a, r, s')]."""

    @abstractmethod
    def act(self, params: Params, obs: Tensor, z: Tensor) -> Tensor:
        """Actions in [-1, 1] at observations [..., S] in the tasks z [..., l]."""

    def evidence(self, params: Params, context: Tensor) -> tuple[Tensor, Tensor]:
        """Codes of transitions and their weights [..., C, l], where z is the weighted mean of the codes.

        Who says it has policies that learn from one row after the other.
        """
        raise NotImplementedError

    @classmethod
    def has_evidence(cls) -> bool:
        """Whether there is an `evidence` that is about its `infer`: an heir that infers otherwise says its own."""
        of = {name: next(base for base in cls.__mro__ if name in vars(base)) for name in ("evidence", "infer")}
        return of["evidence"] is not Algorithm and issubclass(of["evidence"], of["infer"])

    @property
    def recipe(self) -> Recipe | None:
        """`infer` and `act` in words, where these suffice: `omrl export --to numpy` needs them."""
        return None

    def q(self, params: Params, obs: Tensor, z: Tensor, act: Tensor) -> Tensor:
        """Values [critics, ...] of actions, where the algorithm `has_values`."""
        raise NotImplementedError


# -- whether its parts are what they should be -------------------------------------------------------------------------


def _check_nets(kind: type[Algorithm[MetaConfig]], *given: object) -> None:
    """Refuse networks that cannot be made as all are: by dimensions, settings and a generator."""
    if not callable(kind.Nets):
        raise OmrlError(f"{kind.__name__}.Nets must be a class of networks, not {shortened(kind.Nets)}.")
    try:
        inspect.signature(kind.Nets).bind(*given, torch.Generator())
    except (TypeError, ValueError) as error:
        wanted = f"{kind.__name__}.Nets must take (obs_dim, act_dim, config, generator)"
        raise OmrlError(f"{wanted}, and does not: {error}.") from None


def _check_parts(algorithm: Algorithm[MetaConfig]) -> None:
    """Refuse parts that are there and are something else: the engine would fail on them somewhere far away."""
    whose = type(algorithm).__name__
    nets = algorithm.nets
    names = [name for name, _ in nets.named_parameters()] if isinstance(nets, nn.Module) else []
    if not names:
        raise OmrlError(f"{whose}.Nets must make a module that has parameters, not {shortened(nets)}.")

    def is_name(value: object) -> bool:
        return isinstance(value, str)

    def is_child(value: object) -> bool:
        return is_name(value) and any(name.startswith(f"{value}.") for name in names)

    def is_step(value: object) -> bool:
        return isinstance(value, tuple) and len(value) == 2 and is_child(value[0]) and callable(value[1])

    rates = algorithm.learning_rate
    checks: tuple[tuple[str, object, bool, str], ...] = (
        ("learning_rate", rates, _is_rates(rates), 'step sizes by prefix, such as {"": 1e-3}'),
        # These need not be there by all settings.
        ("targets", algorithm.targets, _all(algorithm.targets, is_name), "names of children of the networks"),
        ("plain_descent", algorithm.plain_descent, _all(algorithm.plain_descent, is_name), "names of parameters"),
        ("slowing", algorithm.slowing, _is_share(algorithm.slowing), "a number between 0 and 1"),
        ("tau", algorithm.tau, _is_share(algorithm.tau), "a number between 0 and 1"),
        ("batch_spec", algorithm.batch_spec, isinstance(algorithm.batch_spec, BatchSpec), "a BatchSpec"),
        ("child_steps", algorithm.child_steps, _all(algorithm.child_steps, is_step), "pairs of a child and a loss"),
        ("has_values", algorithm.has_values, isinstance(algorithm.has_values, bool), "true or false"),
        ("discrete_actions", algorithm.discrete_actions, isinstance(algorithm.discrete_actions, bool), "true or false"),
    )
    for name, found, right, wanted in checks:
        if not right:
            raise OmrlError(f"{whose}.{name} must be {wanted}, not {shortened(found)}.")
    if without := [name for name in names if not any(name.startswith(prefix) for prefix in rates)]:
        raise OmrlError(f'{whose}.learning_rate has no step size for {without[0]}; the prefix "" is all of them.')


def _all(values: object, fits: Callable[[object], bool]) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str) and all(fits(one) for one in values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_rates(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(prefix, str) and _is_number(rate) and rate >= 0 for prefix, rate in value.items()
    )
