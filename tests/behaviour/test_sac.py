from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.func import grad

from omrl.behaviour.config import SACConfig
from omrl.behaviour.sac import SAC, build
from omrl.learning.nets import LOG_STD_MAX, LOG_STD_MIN, squashed_gaussian

OBS, ACT, ROWS = 3, 2, 6
CONFIG = SACConfig(
    actor_hidden=(5, 4),
    critic_hidden=(4,),
    gamma=0.9,
    reward_scale=2.5,
    target_entropy=-0.7,
    initial_temperature=0.3,
)


# ----------------------------------------------------------------------------- the same in numpy


def mlp(params, name, x):
    layers = sum(key.startswith(f"{name}.weight.") for key in params)
    for i in range(layers):
        x = x @ params[f"{name}.weight.{i}"] + params[f"{name}.bias.{i}"]
        if i < layers - 1:
            x = np.maximum(x, 0.0)
    return x


def policy(params, obs, noise):
    """tanh of a Gaussian, and the log-density by the change of variables."""
    outputs = mlp(params, "actor", obs)
    mean, raw = outputs[..., :ACT], outputs[..., ACT:]
    std = np.exp(LOG_STD_MIN + (LOG_STD_MAX - LOG_STD_MIN) * (np.tanh(raw) + 1.0) / 2.0)
    act = np.tanh(mean + std * noise)
    gaussian = np.exp(-0.5 * noise**2) / (std * math.sqrt(2.0 * math.pi))
    return act, np.log(gaussian / (1.0 - act**2)).sum(-1)


def q_values(params, obs, act):
    return mlp(params, "critic", np.concatenate([obs, act], axis=-1))[..., 0]


def critic_loss(params, targets, batch, noise):
    next_act, next_log_prob = policy(params, batch["next_obs"], noise["next_act"])
    value = q_values(targets, batch["next_obs"], next_act).min(axis=0)
    value = value - np.exp(params["log_temperature"]) * next_log_prob
    wanted = CONFIG.reward_scale * batch["rew"] + CONFIG.gamma * np.where(batch["term"] > 0, 0.0, value)
    q = q_values(params, batch["obs"], batch["act"])
    return ((q[0] - wanted) ** 2).mean() + ((q[1] - wanted) ** 2).mean()


def actor_loss(params, batch, noise):
    act, log_prob = policy(params, batch["obs"], noise["act"])
    return (np.exp(params["log_temperature"]) * log_prob - q_values(params, batch["obs"], act).min(axis=0)).mean()


def temperature_loss(params, batch, noise):
    entropy = -policy(params, batch["obs"], noise["act"])[1].mean()
    return params["log_temperature"] * (entropy - CONFIG.target_entropy * ACT)


# ----------------------------------------------------------------------------- one agent and one batch


@pytest.fixture
def agent():
    """Losses, and in float64: parameters, targets, batch, noise."""
    learners, sac = build(OBS, ACT, CONFIG, [1])
    rng = np.random.default_rng(2)

    def jolted(scale):
        return {
            name: p.detach().double() + scale * torch.from_numpy(rng.normal(size=tuple(p.shape)))
            for name, p in learners[0].named_parameters()
        }

    params, targets = jolted(0.3), jolted(0.5)
    batch = {
        "obs": rng.normal(size=(ROWS, OBS)),
        "act": rng.uniform(-1, 1, (ROWS, ACT)),
        "rew": rng.normal(size=ROWS),
        "next_obs": rng.normal(size=(ROWS, OBS)),
        "term": np.array([0.0, 1.0, 0.0, 0.0, 1.0, 0.0]),
    }
    noise = {name: rng.normal(size=(ROWS, ACT)) for name in ("act", "next_act")}
    return sac, params, {k: v for k, v in targets.items() if k.startswith("critic.")}, tensors(batch), tensors(noise)


def tensors(arrays):
    return {name: torch.as_tensor(value) for name, value in arrays.items()}


def arrays(values):
    return {name: value.numpy().copy() for name, value in values.items()}


def test_losses_equal_a_numpy_implementation(agent):
    sac, params, targets, batch, noise = agent
    p, t, b, n = (arrays(values) for values in (params, targets, batch, noise))
    critic, _ = sac.critic_loss(params, targets, batch, noise)
    actor, log_prob = sac.actor_loss(params, batch, noise)
    temperature = sac.temperature_loss(params, log_prob, ACT)
    assert critic.item() == pytest.approx(critic_loss(p, t, b, n), rel=1e-10)
    assert actor.item() == pytest.approx(actor_loss(p, b, n), rel=1e-10)
    assert temperature.item() == pytest.approx(temperature_loss(p, b, n), rel=1e-10)
    joint, info = sac.loss(params, targets, batch, noise)
    assert joint.item() == pytest.approx((critic + actor + temperature).item(), rel=1e-12)
    assert info["entropy"].item() == pytest.approx(-log_prob.mean().item(), rel=1e-12)
    assert info["temperature"].item() == pytest.approx(math.exp(params["log_temperature"].item()), rel=1e-12)


def test_each_network_gets_the_finite_difference_of_its_own_loss_alone(agent):
    sac, params, targets, batch, noise = agent
    found = grad(lambda p: sac.loss(p, targets, batch, noise)[0])(params)
    p, t, b, n = (arrays(values) for values in (params, targets, batch, noise))
    own = {
        "critic": lambda: critic_loss(p, t, b, n),
        "actor": lambda: actor_loss(p, b, n),
        "log_temperature": lambda: temperature_loss(p, b, n),
    }
    step = 1e-5
    for name, value in p.items():
        loss = own[name.split(".")[0]]
        expected = np.zeros_like(value)
        for index in np.ndindex(value.shape):
            kept = value[index]
            value[index] = kept + step
            above = loss()
            value[index] = kept - step
            expected[index] = (above - loss()) / (2 * step)
            value[index] = kept
        np.testing.assert_allclose(found[name].numpy(), expected, rtol=1e-5, atol=1e-7, err_msg=name)
        assert np.abs(expected).sum() > 0, name


def test_the_joint_gradient_of_each_network_is_that_of_its_own_loss_alone(agent):
    sac, params, targets, batch, noise = agent
    joint = grad(lambda p: sac.loss(p, targets, batch, noise)[0])(params)
    alone = {
        "critic": grad(lambda p: sac.critic_loss(p, targets, batch, noise)[0])(params),
        "actor": grad(lambda p: sac.actor_loss(p, batch, noise)[0])(params),
        "log_temperature": grad(lambda p: sac.temperature_loss(p, sac.actor_loss(p, batch, noise)[1], ACT))(params),
    }
    for name, value in joint.items():
        for owner, gradient in alone.items():
            expected = value if name.split(".")[0] == owner else torch.zeros_like(value)
            torch.testing.assert_close(gradient[name], expected, msg=f"{owner} loss, {name}")


def test_only_terminations_stop_bootstrapping(agent):
    sac, params, targets, batch, noise = agent

    def loss(term, shift):
        changed = batch | {"term": torch.full((ROWS,), term).double(), "next_obs": batch["next_obs"] + shift}
        return sac.critic_loss(params, targets, changed, noise)[0]

    assert loss(1.0, 0.0) == loss(1.0, 5.0)
    assert loss(0.0, 0.0) != loss(0.0, 5.0)


def test_the_temperature_rises_under_the_target_entropy_and_falls_above_it(agent):
    sac, params, *_ = agent

    def slope(entropy):
        return grad(lambda p: sac.temperature_loss(p, torch.full((ROWS,), -entropy).double(), ACT))(params)

    target = CONFIG.target_entropy * ACT
    assert slope(target - 1.0)["log_temperature"] < 0
    assert slope(target + 1.0)["log_temperature"] > 0


# ----------------------------------------------------------------------------- the squashed Gaussian


@pytest.mark.parametrize(("mean", "raw"), [(0.0, 0.0), (0.6, 0.2), (-1.0, 0.4581)])
def test_the_density_of_an_action_integrates_to_one(mean, raw):
    nodes, weights = np.polynomial.legendre.leggauss(300)
    std = math.exp(LOG_STD_MIN + (LOG_STD_MAX - LOG_STD_MIN) * (math.tanh(raw) + 1.0) / 2.0)
    noise = (np.arctanh(nodes) - mean) / std
    outputs = torch.tensor([mean, raw], dtype=torch.float64).expand(len(nodes), 2)
    act, log_prob = squashed_gaussian(outputs, torch.from_numpy(noise)[:, None])
    np.testing.assert_allclose(act[:, 0].numpy(), nodes, atol=1e-12)
    assert (weights * log_prob.exp().numpy()).sum() == pytest.approx(1.0, abs=1e-3)


def test_the_log_density_equals_torchs_transformed_normal():
    outputs, noise = torch.randn(50, 6, dtype=torch.float64), torch.randn(50, 3, dtype=torch.float64)
    act, log_prob = squashed_gaussian(outputs, noise)
    mean, raw = outputs.chunk(2, dim=-1)
    std = (LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (raw.tanh() + 1)).exp()
    normal = torch.distributions.Normal(mean, std)
    u = mean + std * noise
    transform = torch.distributions.TanhTransform()
    expected = (normal.log_prob(u) - transform.log_abs_det_jacobian(u, u.tanh())).sum(-1)
    torch.testing.assert_close(log_prob, expected)
    torch.testing.assert_close(act, u.tanh())


def test_the_log_density_stays_finite_far_out():
    outputs = torch.tensor([[60.0, 3.0], [-60.0, -3.0]])
    act, log_prob = squashed_gaussian(outputs, torch.tensor([[5.0], [-5.0]]))
    assert torch.isfinite(log_prob).all()
    assert act.abs().max() <= 1.0


# ----------------------------------------------------------------------------- networks


def test_an_untrained_policy_has_unit_standard_deviation_and_hardly_a_mean():
    learners, sac = build(OBS, ACT, CONFIG, [0])
    params = dict(learners[0].named_parameters())
    obs = torch.randn(100, OBS)
    outputs = torch.atanh(sac.act(params, obs, torch.zeros(100, ACT))[0])
    spread = torch.atanh(sac.act(params, obs, torch.ones(100, ACT))[0]) - outputs
    assert outputs.abs().max() < 0.1
    torch.testing.assert_close(spread, torch.ones_like(spread), rtol=0.05, atol=0.0)


def test_twin_critics_differ_and_do_not_mix():
    learners, sac = build(OBS, ACT, CONFIG, [0])
    params = {name: value.detach().clone() for name, value in learners[0].named_parameters()}
    obs, act = torch.randn(5, OBS), torch.randn(5, ACT)
    before = sac.q(params, obs, act)
    assert before.shape == (2, 5)
    assert not torch.allclose(before[0], before[1])
    params["critic.weight.0"][0] += 1.0
    after = sac.q(params, obs, act)
    assert torch.equal(before[1], after[1])
    assert not torch.equal(before[0], after[0])


def test_a_seed_gives_the_same_agent_whichever_others_are_built():
    one, _ = build(OBS, ACT, CONFIG, [7])
    many, sac = build(OBS, ACT, CONFIG, [3, 7])
    assert isinstance(sac, SAC)
    for name, value in one[0].named_parameters():
        assert torch.equal(value, dict(many[1].named_parameters())[name])
