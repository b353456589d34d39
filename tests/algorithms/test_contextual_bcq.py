"""BCQ's pure functions and Contextual BCQ's losses against independent numpy implementations; who trains what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from references import A, B, C, L, M, S, example, gradients, np_mlp, np_posterior, np_q, numpy_of, params_of, slope

from omrl.algorithms import bcq
from omrl.algorithms.contextual_bcq import ContextualBCQ, ContextualBCQConfig, ContextualBCQNets

SMALL = ContextualBCQConfig(
    latent_dim=L,
    encoder_hidden=(8, 8),
    actor_hidden=(8, 8),
    critic_hidden=(8, 7),
    vae_hidden=(8,),
    meta_batch=M,
    batch_size=B,
    context_size=C,
)
LATENT = 2 * A


def contextual_bcq(**changes: object) -> ContextualBCQ:
    config = replace(SMALL, **changes)  # type: ignore[arg-type]
    return ContextualBCQ(ContextualBCQNets(S, A, config, torch.Generator().manual_seed(0)).double(), config)


def problem(algorithm: ContextualBCQ):
    params, (batch, _) = params_of(algorithm.nets), example()
    targets = {name: value + 0.05 for name, value in params.items() if name.split(".")[0] in algorithm.targets}
    generator = torch.Generator().manual_seed(1)
    noise = algorithm.noise({name: value[None] for name, value in batch.items()}, generator)
    return params, targets, batch, {name: value[0].double() for name, value in noise.items()}


def np_z(params, batch, noise) -> np.ndarray:
    mean, variance = np_posterior(params, batch["context"][:, 0])
    return np.repeat((mean + np.sqrt(variance) * noise["z"])[:, None], B, axis=1)


def np_decode(params, state, latent) -> np.ndarray:
    return np.tanh(np_mlp(params, "vae.decoder", np.concatenate([state, latent], -1)))


def np_generate(vae, actor, state, latent, limit) -> np.ndarray:
    act = np_decode(vae, state, np.clip(latent, -0.5, 0.5))
    return np.clip(act + limit * np.tanh(np_mlp(actor, "actor", np.concatenate([state, act], -1))), -1, 1)


def np_vae(params, state, act, noise) -> float:
    code = np_mlp(params, "vae.encoder", np.concatenate([state, act], -1))
    mean, std = code[..., :LATENT], np.exp(np.clip(code[..., LATENT:], -4, 15))
    kl = -0.5 * np.mean(1 + np.log(std**2) - mean**2 - std**2)
    return np.mean((np_decode(params, state, mean + std * noise) - act) ** 2) + 0.5 * kl


def np_target(params, targets, batch, z, noise, config) -> np.ndarray:
    """Candidate after candidate."""
    best = np.full((M, B), -np.inf)
    state = np.concatenate([batch["next_obs"], z], -1)
    for k in range(10):
        act = np_generate(params, targets, state, noise["next_latents"][:, :, k], config.perturbation)
        q1, q2 = np_q(targets, batch["next_obs"], z, act)
        best = np.maximum(best, 0.75 * np.minimum(q1, q2) + 0.25 * np.maximum(q1, q2))
    reward = batch["rew_dense"] if config.dense_reward else batch["rew"]
    return config.reward_scale * reward + config.gamma * (1 - batch["term"]) * best


# -- values ------------------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_method():
    config = ContextualBCQConfig()
    assert (bcq.CANDIDATES, bcq.LATENT_BOUND, bcq.latent_dim(6)) == (10, 0.5, 12)
    assert (config.perturbation, config.soft_clipping, config.reward_scale) == (0.05, 0.75, 1.0)


def test_soft_clipping_by_hand():
    found = bcq.soft_clipped(torch.tensor([[1.0, 5.0], [3.0, 2.0]]), 0.75)
    assert found.tolist() == [0.75 * 1 + 0.25 * 3, 0.75 * 2 + 0.25 * 5]


@pytest.mark.parametrize(("dense", "scale"), [(False, 1.0), (True, 3.0)])
def test_losses_equal_numpy(dense, scale):
    algorithm = contextual_bcq(dense_reward=dense, reward_scale=scale, perturbation=0.3)
    params, targets, batch, noise = problem(algorithm)
    b, n = numpy_of(batch), numpy_of(noise)
    z = np_z(params, b, n)
    state = np.concatenate([b["obs"], z], -1)
    y = np_target(params, targets, b, z, n, algorithm.config)
    act = np_generate(params, params, state, n["latent"], 0.3)
    value = np_q(params, b["obs"], z, act)[0].mean()
    wanted = {
        "vae_loss": np_vae(params, state, b["act"], n["vae"]),
        "critic_loss": sum(np.mean((q - y) ** 2) for q in np_q(params, b["obs"], z, b["act"])),
        "actor_loss": -value,
        "q": value,
    }
    found, info = algorithm.loss(params, targets, batch, noise)
    assert info.keys() == {*wanted, "saturated", "saturated_logged"}
    for name, expected in wanted.items():
        assert float(info[name]) == pytest.approx(float(expected), rel=1e-8), name
    assert float(found) == pytest.approx(sum(float(wanted[f"{kind}_loss"]) for kind in ("vae", "critic", "actor")))


def test_the_spread_of_the_autoencoder_is_clamped():
    algorithm = contextual_bcq()
    params, _, batch, noise = problem(algorithm)
    for bias, clamped in ((-100.0, -4.0), (100.0, 15.0)):
        raw = {**params, "vae.encoder.bias.1": params["vae.encoder.bias.1"] + bias}
        z = torch.zeros(M, B, L, dtype=torch.float64)
        state = np.concatenate([batch["obs"].numpy(), z.numpy()], -1)
        code = np_mlp(raw, "vae.encoder", np.concatenate([state, batch["act"].numpy()], -1))
        mean, std = code[..., :LATENT], np.exp(clamped)
        error = np_decode(raw, state, mean + std * noise["vae"].numpy()) - batch["act"].numpy()
        wanted = np.mean(error**2) + 0.25 * np.mean(mean**2 + std**2 - 1 - 2 * clamped)
        found = bcq.L_vae(algorithm.nets, raw, torch.tensor(state), batch["act"], noise["vae"])
        assert float(found) == pytest.approx(float(wanted), rel=1e-8)


def test_candidates_stay_near_the_decoded_actions_and_within_the_bounds():
    algorithm = contextual_bcq(perturbation=0.4)
    params, _, batch, noise = problem(algorithm)
    state = torch.cat([batch["obs"], torch.zeros(M, B, L, dtype=torch.float64)], -1)
    loud = {name: value * 50 for name, value in params.items()}
    acts, states = bcq.generate(algorithm.nets, loud, loud, state, noise["next_latents"], 0.4)
    decoded = bcq.decode(algorithm.nets, loud, states, noise["next_latents"].clamp(-0.5, 0.5))
    assert acts.shape == (M, B, 10, A)
    assert (acts - decoded).abs().max() <= 0.4 + 1e-12 and acts.abs().max() == 1


def test_act_takes_the_best_of_ten_candidates_by_the_first_critic():
    algorithm = contextual_bcq(perturbation=0.3)
    params, _, batch, _ = problem(algorithm)
    obs, z = batch["obs"][0], torch.randn(B, L, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = algorithm.act(params, obs, z)
    # Not the candidates of the mean latent: the values differ between them.
    latents = bcq.act_latents(A).double().numpy()
    assert latents.shape == (10, LATENT)
    for i in range(B):
        state = np.repeat(np.concatenate([obs[i], z[i]])[None], 10, axis=0)
        acts = np_generate(params, params, state, latents, 0.3)
        q = np_q(params, state[:, :S], state[:, S:], acts)[0]
        np.testing.assert_allclose(found[i].numpy(), acts[q.argmax()], rtol=1e-9)
    assert torch.equal(found, contextual_bcq(perturbation=0.3).act(params, obs, z))  # no random numbers are drawn


def test_bcq_s_functions_take_a_single_task_s_state_as_it_is():
    nets = bcq.BCQNets(
        S, A, actor_hidden=(8,), critic_hidden=(8,), vae_hidden=(8,), generator=torch.Generator().manual_seed(0)
    ).double()
    params, (batch, _) = params_of(nets), example()
    obs = batch["obs"][0]
    latents = torch.randn(B, 10, LATENT, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    value = bcq.target_value(nets, params, params, obs, latents, 0.05, 0.75)
    assert value.shape == (B,)
    acts, states = bcq.candidates(nets, params, obs, latents[0], 0.05)
    assert acts.shape == (B, 10, A) and states.shape == (B, 10, S)
    chosen = bcq.best(acts, torch.eye(10, dtype=torch.float64)[torch.arange(B) % 10])
    assert torch.equal(chosen, acts[torch.arange(B), torch.arange(B) % 10])
    loss, q, act = bcq.L_actor(nets, params, obs, latents[:, 0], 0.05)
    assert float(loss) == -float(q) and act.shape == (B, A) and not act.requires_grad
    assert bcq.L_vae(nets, params, obs, batch["act"][0], latents[:, 0]) > 0
    assert bcq.L_critic(nets, params, obs, batch["act"][0], value) >= 0


# -- gradients ---------------------------------------------------------------------------------------------------------


def losses(algorithm: ContextualBCQ, leaves, targets, batch, noise):
    """One by one, with z as the update has it."""
    nets, config = algorithm.nets, algorithm.config
    z = algorithm.infer(leaves, batch["context"][:, 0], noise["z"])[:, None].expand(-1, B, -1)
    state, next_state = (torch.cat([batch[name], z], -1) for name in ("obs", "next_obs"))
    limits = config.perturbation, config.soft_clipping
    value = bcq.target_value(nets, leaves, targets, next_state, noise["next_latents"], *limits)
    target = config.reward_scale * batch["rew"] + config.gamma * (1 - batch["term"]) * value
    return {
        "vae": bcq.L_vae(nets, leaves, state, batch["act"], noise["vae"]),
        "critic": bcq.L_critic(nets, leaves, state, batch["act"], target),
        "actor": bcq.L_actor(nets, leaves, state, noise["latent"], config.perturbation)[0],
    }


def test_each_loss_moves_its_own_network_and_two_of_them_the_encoder():
    algorithm = contextual_bcq(perturbation=0.3)
    params, targets, batch, noise = problem(algorithm)
    leaves = {name: value.requires_grad_() for name, value in params.items()}
    joint = gradients(algorithm.loss(leaves, targets, batch, noise)[0], leaves)
    own = {kind: gradients(loss, leaves) for kind, loss in losses(algorithm, leaves, targets, batch, noise).items()}
    owners = {"vae": {"vae"}, "critic": {"critic"}, "actor": {"actor"}, "encoder": {"vae", "critic"}}
    for name, gradient in joint.items():
        wanted = owners[name.split(".")[0]]
        for kind, found in own.items():
            assert bool(found[name].any()) is (kind in wanted), (name, kind)
        torch.testing.assert_close(gradient, sum(own[kind][name] for kind in wanted))


def test_the_share_of_saturated_actions_is_logged():
    algorithm = contextual_bcq(perturbation=2.0)
    params, targets, batch, noise = problem(algorithm)
    batch["act"][0] = -1.0
    params["actor.bias.2"][...] = 50.0  # every candidate is moved up as far as it may, which is beyond the bound
    _, info = algorithm.loss(params, targets, batch, noise)
    assert float(info["saturated"]) == 1.0
    assert float(info["saturated_logged"]) == pytest.approx(1 / M)


def test_gradients_equal_the_slopes_of_the_numpy_losses():
    algorithm = contextual_bcq(perturbation=0.3)
    params, targets, batch, noise = problem(algorithm)
    b, n = numpy_of(batch), numpy_of(noise)
    still = np_z(params, b, n)
    y = np_target(params, targets, b, still, n, algorithm.config)  # a constant, whatever moves

    def both(moved) -> float:
        z = np_z(moved, b, n)
        critic = sum(np.mean((q - y) ** 2) for q in np_q(moved, b["obs"], z, b["act"]))
        return critic + np_vae(moved, np.concatenate([b["obs"], z], -1), b["act"], n["vae"])

    def actor(moved) -> float:
        act = np_generate(params, moved, np.concatenate([b["obs"], still], -1), n["latent"], 0.3)
        return -np_q(params, b["obs"], still, act)[0].mean()

    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    found = gradients(algorithm.loss(leaves, targets, batch, noise)[0], leaves)
    moved_by = {both: ("encoder.weight.0", "encoder.weight.2", "critic.weight.1", "vae.encoder.weight.1")}
    moved_by |= {actor: ("actor.weight.0", "actor.weight.2")}
    for function, names in moved_by.items():
        for name in names:
            direction = torch.randn(params[name].shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
            wanted = slope(function, params, name, direction)
            assert abs(wanted) > 1e-6
            assert float((found[name] * direction).sum()) == pytest.approx(wanted, rel=1e-4), name
