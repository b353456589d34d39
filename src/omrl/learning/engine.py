"""The engine: P learners of one kind trained at once on one device.

An algorithm states its update once, for ONE learner, as a pure function

    loss(params, targets, batch, noise) -> (scalar, info)

and the engine does what is not algorithm. It stacks P learners along a leading axis, differentiates with
`vmap(grad(loss))`, steps Adam, moves the target networks, and freezes a learner whose loss or gradient is not finite.
What one backward cannot say, such as more steps of one network on fresh batches, is a list of such losses that each
train a part and come before it.
All parameters of the population lie in one tensor [P, n], so that the optimiser and the target update are a few
elementwise operations however many layers there are.

On CUDA the whole step, sampling included, is compiled and captured as one graph; on a CPU it is compiled where a run is
long enough to pay for it. Eager is the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from omrl.errors import OmrlError
from omrl.learning.compiling import compiled
from omrl.learning.nets import MLP
from omrl.words import shortened

Params = Mapping[str, Tensor]
Batch = Mapping[str, Tensor]
Info = dict[str, Tensor]
Loss = Callable[[Params, Params, Batch, Batch], tuple[Tensor, Info]]
Draw = Callable[[torch.Generator], tuple[Batch, Batch]]
Mode = Literal["eager", "compiled", "graph"]

ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-8
# Each parameter starts at a multiple of this many floats: matrix units want 16-byte aligned operands.
ALIGN = 8
# On CUDA networks have room for widths of a multiple of this: rows of 300 numbers in bfloat16 are no multiple of 16
# bytes, and the library would fall back to kernels of an older generation.
ROOM = 16
WARM_UP_STEPS = 3


def call(module: nn.Module, params: Params, name: str, *inputs: Tensor) -> Tensor:
    """Apply the child `name` of `module` with its parameters taken from `params` (names as in `named_parameters`).

    All of them have to be there: the module's own, which nobody trains, would give plausible numbers.
    """
    prefix = f"{name}."
    own = {key[len(prefix) :]: value for key, value in params.items() if key.startswith(prefix)}
    result: Tensor = functional_call(module.get_submodule(name), own, inputs, strict=True)
    return result


def detached(params: Params) -> dict[str, Tensor]:
    """The same parameters cut off from gradients: how a loss reads a network that another loss trains."""
    return {key: value.detach() for key, value in params.items()}


class Population:
    """P learners with stacked parameters, one pure loss, Adam and target networks.

    `learners` are P modules of one architecture; their initial weights may differ or be equal. `learning_rate` maps a
    parameter name or prefix to its rate ("" is the default). `targets` names the children that have a slowly moving
    copy, which the loss receives under the same names. Parameters named in `plain_descent` move by plain gradient
    descent instead of Adam: for a multiplier whose step should be in proportion to what it watches. Each of
    `child_steps` is the name of a child and a loss that trains this child alone, on a batch of its own, before `loss`
    trains everything.
    With `bfloat16` the losses get the networks' weights in bfloat16; what is trained and kept are those in single
    precision. `room` rounds the widths of networks up inside the engine, with zeros that stay zeros: nobody sees it
    in `params` or `state`.
    """

    def __init__(
        self,
        learners: Sequence[nn.Module],
        loss: Loss,
        *,
        learning_rate: Mapping[str, float],
        targets: Sequence[str] = (),
        plain_descent: Sequence[str] = (),
        child_steps: Sequence[tuple[str, Loss]] = (),
        tau: float = 0.005,
        seed: int = 0,
        device: torch.device | str = "cpu",
        mode: Mode | None = None,
        bfloat16: bool = False,
        room: int | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.size = len(learners)
        self.mode: Mode = mode or ("graph" if self.device.type == "cuda" else "eager")
        self.generator = torch.Generator(self.device)
        self.generator.manual_seed(seed)
        if self.device.type == "cuda":
            # Matrix products in tf32: the matrix units' float32 mode, which this training does not notice.
            torch.set_float32_matmul_precision("high")
        self._tau = tau
        self._graph: torch.cuda.CUDAGraph | None = None
        self._graph_info: Info = {}

        shapes = {name: p.shape for name, p in learners[0].named_parameters()}
        # Parameters with a target come first: then the targets are one contiguous block of the flat tensor.
        has_target = {name: any(name.startswith(f"{child}.") for child in targets) for name in shapes}
        names = sorted(shapes, key=lambda name: not has_target[name])
        asked = {name: shapes[name] for name in names}
        of_networks = _roomy(learners[0], room or room_on(self.device))
        self._slots, width = slots({**asked, **{name: of_networks[name] for name in names if name in of_networks}})
        self._compact_slots, _ = slots(asked)
        target_width = max((self._end(name) for name in names if has_target[name]), default=0)
        self._flat = torch.zeros(self.size, width, device=self.device)
        self._first_moment = torch.zeros_like(self._flat)
        self._second_moment = torch.zeros_like(self._flat)
        self._plain = torch.zeros(width, dtype=torch.bool, device=self.device)
        self._steps = torch.zeros(width, device=self.device)
        self.alive = torch.ones(self.size, dtype=torch.bool, device=self.device)
        # Where there is room to spare: what is no room.
        self._asked: Tensor | None = None
        if self._slots != self._compact_slots:
            self._asked = torch.zeros(1, width, dtype=torch.bool, device=self.device)
            for view, _, _ in self._places(self._asked):
                view.fill_(True)

        self.params = self._asked_views(self._flat)
        own = [dict(learner.named_parameters()) for learner in learners]
        for name, view in self.params.items():
            view.copy_(torch.stack([params[name].detach() for params in own]))
            self._plain[self._slots[name][0] : self._end(name)] = name in plain_descent
        self.set_rates([learning_rate])
        self._target_flat = self._flat[:, :target_width].clone()
        self.targets = self._asked_views(self._target_flat)
        # What losses read: the same tensors, or copies of the networks' weights in half precision.
        self._low = self._flat.bfloat16() if bfloat16 else None
        self._low_targets = self._target_flat.bfloat16() if bfloat16 else None
        self._read, self._read_targets = self._views(self._flat), self._views(self._target_flat)
        if self._low is not None and self._low_targets is not None:
            self._read |= {name: view for name, view in self._views(self._low).items() if name in of_networks}
            low = self._views(self._low_targets)
            self._read_targets |= {name: view for name, view in low.items() if name in of_networks}

        # Several steps of one child share a loss: it is compiled once.
        parts = {key: self._part(*key) for key in [*child_steps, ("", loss)]}
        self._parts = [parts[key] for key in [*child_steps, ("", loss)]]

    def set_rates(self, learning_rates: Sequence[Mapping[str, float]]) -> None:
        """Step sizes by parameter name or prefix: one table for all learners, or one for each; before any step."""
        rate = torch.zeros(len(learning_rates), self._flat.shape[1], device=self.device)
        for row, table in zip(rate, learning_rates, strict=True):
            for name, (start, shape) in self._slots.items():
                prefix = max((key for key in table if name.startswith(key)), key=len)
                row[start : start + shape.numel()] = table[prefix]
        self._full_rate, self._rate = rate, rate.clone()

    def slow_down(self, factor: float) -> None:
        """Take Adam's steps by this factor of their sizes from now on; plain descent keeps its own."""
        self._rate.copy_(torch.where(self._plain, self._full_rate, factor * self._full_rate))

    def _end(self, name: str) -> int:
        """Where the next parameter begins in the flat tensor."""
        start, shape = self._slots[name]
        return start + _aligned(shape.numel())

    def _views(self, flat: Tensor) -> dict[str, Tensor]:
        """Parameters by name, with the room that they are stored with."""
        return {
            name: flat[:, start : start + shape.numel()].view(self.size, *shape)
            for name, (start, shape) in self._slots.items()
            if start < flat.shape[1]
        }

    def _asked_views(self, flat: Tensor) -> dict[str, Tensor]:
        """The same in the shapes that the learners have."""
        return {
            name: view[(slice(None), *map(slice, self._compact_slots[name][1]))]
            for name, view in self._views(flat).items()
        }

    def step(self, draw: Draw) -> Info:
        """One update of every learner; `draw` gives batch and noise [P, ...] from the population's generator.

        In graph mode the first call captures `draw` too, so later calls must pass the same function and it must read
        only tensors that stay in place.
        """
        if self.mode != "graph":
            return self._step(draw)
        if self._graph is None:
            self._capture(draw)
        assert self._graph is not None
        self._graph.replay()
        return self._graph_info

    def _part(self, child: str, loss: Loss) -> Callable[[Batch, Batch], Info]:
        """One step of `loss` on the parameters of `child` ("" is all of them)."""
        names = [name for name in self._slots if not child or name.startswith(f"{child}.")]
        moving = {name: self._read[name] for name in names}
        rest = {name: value for name, value in self._read.items() if name not in moving}
        plainly = vmap(
            grad_and_value(lambda moving, rest, *inputs: _told(loss, {**rest, **moving}, *inputs), has_aux=True)
        )
        gradient: Callable[..., Any] = plainly
        apply: Callable[..., None] = partial(_apply, self._tau)
        if self.mode != "eager":
            gradient, apply = compiled(gradient), compiled(apply)

        def step(batch: Batch, noise: Batch) -> Info:
            inputs = (moving, rest, self._read_targets, batch, noise)
            try:
                gradients, (value, info) = gradient(*inputs)
            except Exception:
                if gradient is not plainly:
                    plainly(*inputs)  # what a loss says is lost among what the compiler says of it
                raise
            apply(self._stretch(names, targets=not child), [gradients[name] for name in names], value)
            return dict(info)

        return step

    def _step(self, draw: Draw) -> Info:
        for part in self._parts:
            info = part(*draw(self.generator))
        return info

    def _stretch(self, names: Sequence[str], targets: bool) -> dict[str, Tensor]:
        """What a step of neighbouring parameters reads and changes, as views; all of it where targets move too."""
        part = slice(self._slots[names[0]][0], self._end(names[-1]))
        whole = {"flat": self._flat, "first": self._first_moment, "second": self._second_moment, "rate": self._rate}
        low, low_targets = self._low, self._low_targets
        whole |= {"low": low} if low is not None else {}
        found = {name: tensor[:, part] for name, tensor in whole.items()}
        found |= {"steps": self._steps[part], "plain": self._plain[part], "alive": self.alive}
        found |= {"asked": self._asked[:, part]} if self._asked is not None else {}
        if targets:
            found |= {"targets": self._target_flat, **({"low_targets": low_targets} if low_targets is not None else {})}
        return found

    def _lower(self) -> None:
        """Bring the copies in half precision up to date."""
        if self._low is not None and self._low_targets is not None:
            self._low.copy_(self._flat)
            self._low_targets.copy_(self._target_flat)

    def _capture(self, draw: Draw) -> None:
        """Warm up on a side stream, undo the warm-up, then capture one step as a graph."""
        untouched = {key: value.clone() for key, value in self.state().items()}
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                self._step(draw)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        # Another thread may be looking at the return, and allocate: only what this one does is captured.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._graph_info = self._step(draw)
        self.load_state(untouched)
        self._graph = graph

    def state(self) -> dict[str, Tensor]:
        """Everything the next step depends on, by name (live tensors; clone what should be kept).

        In the learners' own shapes: what is saved with room to spare goes on without, and the other way round.
        """
        return {
            "params": self._compact(self._flat),
            "targets": self._compact(self._target_flat),
            "adam.first_moment": self._compact(self._first_moment),
            "adam.second_moment": self._compact(self._second_moment),
            "adam.steps": self._compact(self._steps[None])[0],
            "alive": self.alive,
            "generator": self.generator.get_state(),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned, in place.

        Random numbers of another kind of device cannot be gone on with: there, the generator stays as it is.
        """
        flats = {
            "params": self._flat,
            "targets": self._target_flat,
            "adam.first_moment": self._first_moment,
            "adam.second_moment": self._second_moment,
            "adam.steps": self._steps[None],
        }
        for name, flat in flats.items():
            self._spread(state[name].reshape(len(flat), -1), flat)
        self.alive.copy_(state["alive"])
        if state["generator"].shape == self.generator.get_state().shape:
            self.generator.set_state(state["generator"].cpu())
        self._lower()

    def _places(self, flat: Tensor) -> Iterator[tuple[Tensor, slice, torch.Size]]:
        """Of each parameter in a flat tensor [n, width]: its view in the shape asked for, its place without room."""
        for name, (start, room) in self._slots.items():
            if start < flat.shape[1]:
                view = flat[:, start : start + room.numel()].view(len(flat), *room)
                first, shape = self._compact_slots[name]
                yield view[(slice(None), *map(slice, shape))], slice(first, first + shape.numel()), shape

    def _compact(self, flat: Tensor) -> Tensor:
        """A flat tensor without room to spare; the tensor itself where there is none."""
        if self._slots == self._compact_slots:
            return flat
        ends = [_aligned(place.stop) for _, place, _ in self._places(flat)]
        compact = flat.new_zeros(len(flat), max(ends, default=0))
        for view, place, _ in self._places(flat):
            compact[:, place] = view.reshape(len(flat), -1)
        return compact

    def _spread(self, compact: Tensor, flat: Tensor) -> None:
        """The inverse of `_compact`, in place."""
        if self._slots == self._compact_slots:
            flat.copy_(compact)
            return
        for view, place, shape in self._places(flat):
            view.copy_(compact[:, place].view(len(flat), *shape))


def _told(loss: Loss, *inputs: Mapping[str, Tensor]) -> tuple[Tensor, Info]:
    """What a loss returns, if it is what one should; names come from those who wrote it."""
    found: Any = loss(*inputs)
    pair = isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)
    if not pair or not all(isinstance(one, Tensor) and one.ndim == 0 for one in (found[0], *found[1].values())):
        name = getattr(loss, "__qualname__", "A loss")
        raise OmrlError(f"{name} must return a scalar tensor and a dict of such tensors, not {shortened(found)}.")
    return found[0], found[1]


def _apply(tau: float, state: Mapping[str, Tensor], gradients: Sequence[Tensor], loss: Tensor) -> None:
    """Adam on a stretch of the flat tensor, in place; a learner with a non-finite loss or gradient stays as it is."""
    pieces = []
    for own in gradients:
        piece = own.reshape(len(own), -1).float()
        pieces.append(torch.nn.functional.pad(piece, (0, -piece.shape[1] % ALIGN)))
    gradient = torch.cat(pieces, dim=1)
    alive, flat, rate = state["alive"], state["flat"], state["rate"]
    alive.logical_and_(torch.isfinite(gradient).all(dim=1) & torch.isfinite(loss))
    moving = alive[:, None]
    gradient = torch.where(moving & state["asked"] if "asked" in state else moving, gradient, 0.0)
    beta1, beta2 = ADAM_BETAS
    steps = state["steps"].add_(1.0)
    first = state["first"].lerp_(gradient, 1.0 - beta1)
    second = state["second"].lerp_(gradient.square(), 1.0 - beta2)
    root = torch.sqrt(1.0 - beta2**steps)
    # Adam's epsilon belongs to the bias-corrected root, hence the factor on it.
    change = first / (second.sqrt() + ADAM_EPS * root) * (rate * root / (1.0 - beta1**steps))
    flat.sub_(torch.where(state["plain"], gradient * rate, change) * moving)
    if "targets" in state:
        targets = state["targets"]
        targets.add_((flat[:, : targets.shape[1]] - targets) * (tau * moving))
    for low, whole in (("low", "flat"), ("low_targets", "targets")):
        if low in state:
            state[low].copy_(state[whole])


def _aligned(numbers: int) -> int:
    return -(-numbers // ALIGN) * ALIGN


def slots(shapes: Mapping[str, torch.Size]) -> tuple[dict[str, tuple[int, torch.Size]], int]:
    """Where each parameter begins in a flat tensor and its shape there, and how wide that tensor is."""
    found, width = {}, 0
    for name, shape in shapes.items():
        found[name] = (width, shape)
        width += _aligned(shape.numel())
    return found, width


def room_on(device: torch.device) -> int:
    """What widths of networks are rounded up to a multiple of."""
    return ROOM if device.type == "cuda" else 1


def width_of(learner: nn.Module) -> int:
    """Of the flat tensor that holds a learner's parameters."""
    return slots({name: param.shape for name, param in learner.named_parameters()})[1]


def _roomy(learner: nn.Module, multiple: int) -> dict[str, torch.Size]:
    """Of all parameters of networks, their shapes with widths of a multiple."""
    return {
        f"{prefix}.{name}": shape
        for prefix, module in learner.named_modules()
        if isinstance(module, MLP)
        for name, shape in module.room(multiple).items()
    }
