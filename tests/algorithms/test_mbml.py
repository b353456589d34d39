"""MBML: losses against independent numpy implementations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from references import A, B, C, L, M, S, np_mlp, params_of

from omrl.algorithms import bcq, mbml_teachers
from omrl.algorithms.common import kl, posterior
from omrl.algorithms.mbml import MBML, MBMLConfig
from omrl.errors import OmrlError

K = 4  # members of an ensemble
TINY = {
    "latent_dim": L,
    "encoder_hidden": (8, 8),
    "actor_hidden": (8,),
    "critic_hidden": (8,),
    "decoder_hidden": (8,),
    "teacher_hidden": (8, 6),
    "teacher_vae_hidden": (8,),
    "members": K,
    "reward_hidden": (8,),
    "next_obs_hidden": (8,),
    "meta_batch": M,
    "batch_size": B,
    "context_size": C,
}


def mbml(**changes):
    config = replace(MBMLConfig(**TINY), **changes)
    nets, algorithm = MBML.build(S, A, config, [0])
    for net in (nets[0], algorithm._teacher, algorithm._models):
        net.double()
    return algorithm


def example(algorithm, varies="dynamics", seed=0):
    """A batch with teachers and ensembles of M tasks, and the noise of an update, of one learner."""
    rng = np.random.default_rng(seed)
    batch = {
        "obs": rng.normal(size=(M, B, S)),
        "act": rng.uniform(-0.9, 0.9, size=(M, B, A)),
        "context": rng.normal(size=(M, 2, C, 2 * S + A + 1)),
    }
    noise = {"z": rng.normal(size=(M, L)), "latent": rng.normal(size=(M, B, 2 * A)), "pick": rng.random((M, M, C))}
    for stage in algorithm.stages(varies):
        learners = [stage.build(torch.Generator().manual_seed(10 * seed + i)) for i in range(M)]
        stacked = {name: torch.stack([params_of(m)[name] for m in learners]) for name in params_of(learners[0])}
        batch |= {name: value.double().numpy() for name, value in stage.result(stacked).items()}
    return tuple({key: torch.tensor(value) for key, value in part.items()} for part in (batch, noise))


# -- numpy references --------------------------------------------------------------------------------------------------


def of_task(batch, i):
    """Teacher and ensembles of one task of a batch."""
    return {name: value[i] for name, value in batch.items()}


def np_posterior(codes):
    mean, variance = codes[:, :L], np.log1p(np.exp(codes[:, L:]))
    precision = (1 / variance).sum(0)
    return (mean / variance).sum(0) / precision, 1 / precision


def np_kl(mean, variance, other_mean, other_variance):
    inverse, difference = np.diag(1 / other_variance), other_mean - mean
    determinants = np.log(np.prod(other_variance) / np.prod(variance))
    return 0.5 * (np.trace(inverse @ np.diag(variance)) + difference @ inverse @ difference - len(mean) + determinants)


def np_relabel(batch, reward_std, next_obs_std=None):
    """Double loop over tasks: what each row would be in task i, and whether the members agree."""
    context = batch["context"].numpy()[:, 0]
    contexts, kept = np.empty((M, M, C, context.shape[-1])), np.zeros((M, M, C), bool)
    for i in range(M):
        models = of_task(batch, i)
        for j in range(M):
            row = context[j].copy()
            if i != j:
                rewards = np.stack([np_mlp(models, "rew_model", row[:, : S + A], k)[:, 0] for k in range(K)])
                kept[i, j] = rewards.std(0, ddof=1) < reward_std
                if next_obs_std is not None:
                    nexts = np.stack([np_mlp(models, "next_obs_model", row[:, : S + A], k) for k in range(K)])
                    kept[i, j] &= nexts.std(0, ddof=1).mean(-1) < next_obs_std
                    row[:, S + A + 1 :] = nexts.mean(0)
                row[:, S + A] = rewards.mean(0)
            contexts[i, j] = row
    return contexts, kept


def np_triplet(codes, kept, margin):
    """The loss as it is told: explicit subsets, one pair after the other."""
    losses = []
    for i in range(M):
        for j in range(M):
            if i == j:
                continue
            if not kept[i, j].any():
                losses.append(0.0)
                continue
            rows = kept[i, j]
            anchor, positive, negative = (np_posterior(c[rows]) for c in (codes[i, j], codes[i, i], codes[j, j]))
            losses.append(max(np_kl(*anchor, *positive) - np_kl(*anchor, *negative) + margin, 0.0))
    return float(np.mean(losses))


# -- the task ----------------------------------------------------------------------------------------------------------


def test_kl_between_diagonal_gaussians_equals_numpy():
    rng = np.random.default_rng(0)
    (mean, other_mean), (variance, other_variance) = rng.normal(size=(2, 5, L)), rng.uniform(0.1, 2, size=(2, 5, L))
    found = kl(*(torch.tensor(x) for x in (mean, variance, other_mean, other_variance)))
    expected = [np_kl(*(x[n] for x in (mean, variance, other_mean, other_variance))) for n in range(5)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert kl(torch.zeros(3), torch.ones(3), torch.zeros(3), torch.ones(3)) == 0


def test_posterior_of_some_rows_is_that_of_a_context_without_the_others():
    codes = torch.tensor(np.random.default_rng(0).normal(size=(6, 2 * L)), requires_grad=True)
    rows = torch.tensor([True, False, True, True, False, False])
    mean, variance = posterior(codes, rows)
    expected = np_posterior(codes.detach().numpy()[rows.numpy()])
    np.testing.assert_allclose(mean.detach(), expected[0], rtol=1e-9)
    np.testing.assert_allclose(variance.detach(), expected[1], rtol=1e-9)
    (gradient,) = torch.autograd.grad(mean.sum() + variance.log().sum(), codes)
    assert (gradient[~rows] == 0).all() and (gradient[rows] != 0).all()


@pytest.mark.parametrize("varies", ["reward", "dynamics", "both"])
def test_relabelling_equals_the_double_loop(varies):
    # With four members the spread of a few rows lies on either side of its median, so that the mask is no constant.
    algorithm = mbml(reward_std=0.35, next_obs_std=0.4)
    batch, _ = example(algorithm, varies)
    assert any(name.startswith("next_obs_model") for name in batch) is (varies != "reward")
    contexts, kept = algorithm.relabel(batch)
    expected = np_relabel(batch, 0.35, None if varies == "reward" else 0.4)
    np.testing.assert_array_equal(kept, expected[1])
    assert 0 < expected[1].sum() < M * (M - 1) * C
    np.testing.assert_allclose(contexts, expected[0], rtol=1e-9, atol=1e-12)


def test_relabelled_rewards_are_as_those_of_the_log_however_they_are_scaled():
    batch, _ = example(mbml(), "reward")
    (usual, kept), (scaled, same) = (mbml(reward_std=0.35, reward_scale=scale).relabel(batch) for scale in (1.0, 0.01))
    other = ~torch.eye(M, dtype=torch.bool)
    torch.testing.assert_close(scaled[other][..., S + A], 100 * usual[other][..., S + A])
    torch.testing.assert_close(scaled[~other], usual[~other])  # its own rows, as logged
    assert torch.equal(kept, same)  # members agree in the units that they learnt


def test_triplet_loss_equals_the_double_loop():
    algorithm = mbml(margin=2.0)
    rng = np.random.default_rng(1)
    codes, kept = rng.normal(size=(M, M, C, 2 * L)), rng.random((M, M, C)) < 0.5
    kept[np.arange(M), np.arange(M)] = False
    kept[0, 1] = False  # a pair without a row
    found = algorithm.L_triplet(torch.tensor(codes), torch.tensor(kept))
    expected = np_triplet(codes, kept, 2.0)
    assert expected > 0
    assert float(found) == pytest.approx(expected, rel=1e-9)


def test_triplet_loss_by_hand():
    # One row each, of variance softplus(raw) = 1. The anchor of pair (1, 0) is relabelled to where its positive is.
    raw = float(np.log(np.e - 1))
    codes = torch.tensor([[[[0.0, raw]], [[2.0, raw]]], [[[1.0, raw]], [[1.0, raw]]]], dtype=torch.float64)
    kept = torch.tensor([[[False], [True]], [[True], [False]]])
    # (0, 1): anchor 2, positive 0, negative 1: KL 2 - 0.5 + 2. (1, 0): anchor 1, positive 1, negative 0: 0 - 0.5 + 2.
    algorithm = mbml(latent_dim=1, margin=2.0)
    assert float(algorithm.L_triplet(codes, kept)) == pytest.approx((3.5 + 1.5) / 2)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_context_is_a_tasks_own_rows_and_as_many_relabelled_ones_if_there_are(share):
    rng = np.random.default_rng(2)
    kept = rng.random((M, M, C)) < share
    kept[np.arange(M), np.arange(M)] = False
    rows = mbml().joined(torch.tensor(kept), torch.tensor(rng.random((M, M, C)))).numpy()
    for i in range(M):
        assert rows[i, i].all()
        others = np.delete(rows[i], i, axis=0)
        assert others.sum() == min(C, kept[i].sum())
        assert not (rows[i] & ~kept[i])[np.arange(M) != i].any()


def test_every_kept_row_has_the_same_chance():
    kept = torch.ones(M, M, C, dtype=torch.bool) & ~torch.eye(M, dtype=torch.bool)[:, :, None]
    algorithm, generator = mbml(), torch.Generator().manual_seed(0)
    rows = torch.stack([algorithm.joined(kept, torch.rand(M, M, C, generator=generator)) for _ in range(2000)])
    share = rows.double().mean(0)[kept]
    assert share.min() > 0.44 and share.max() < 0.56  # C of 2 C; four standard errors are 0.045


# -- distillation ------------------------------------------------------------------------------------------------------


def test_distillation_losses_equal_numpy():
    algorithm = mbml()
    batch, noise = example(algorithm)
    params = params_of(algorithm.nets)
    z = torch.tensor(np.random.default_rng(3).normal(size=(M, 1, L))).expand(-1, B, -1)
    q_error, candidate_error, change_error, values, acts = [], [], [], [], []
    for i in range(M):
        obs, act, latent = (x[i].numpy() for x in (batch["obs"], batch["act"], noise["latent"].clamp(-0.5, 0.5)))
        teacher = of_task(batch, i)
        value = np_mlp(teacher, "teacher.critic", np.concatenate([obs, act], -1))
        candidate = np.tanh(np_mlp(teacher, "teacher.vae.decoder", np.concatenate([obs, latent], -1)))
        change = np.tanh(np_mlp(teacher, "teacher.actor", np.concatenate([obs, candidate], -1)))
        state = np.concatenate([obs, z[i].numpy()], -1)
        own = np.tanh(np_mlp(params, "vae.decoder", np.concatenate([state, latent], -1)))
        own_change = np.tanh(np_mlp(params, "actor", np.concatenate([state, candidate], -1)))
        own_value = np_mlp(params, "critic", np.concatenate([state, act], -1))
        q_error.append((own_value - value) ** 2)
        candidate_error.append((own - candidate) ** 2)
        change_error.append((own_change - change) ** 2)
        values.append(own_value)
        # It acts by its own candidates, where it is taught at the teacher's.
        own_way = np.tanh(np_mlp(params, "actor", np.concatenate([state, own], -1)))
        acts.append(np.clip(own + algorithm.config.perturbation * own_way, -1.0, 1.0))
    found = algorithm.L_distil(params, batch, z, noise["latent"])
    for loss, expected in zip(found[:4], (q_error, candidate_error, change_error, values), strict=True):
        assert float(loss) == pytest.approx(float(np.mean(expected)), rel=1e-9)
    np.testing.assert_allclose(found[4].detach().numpy(), np.stack(acts), rtol=1e-9)


def test_the_teachers_critic_is_the_first_of_two():
    stage = mbml().stages("reward")[0]
    learner = stage.build(torch.Generator().manual_seed(0))
    result = stage.result({name: value[None] for name, value in params_of(learner).items()})
    assert {name.split(".")[1] for name in result} == {"actor", "critic", "vae"}
    assert not any("encoder" in name for name in result)
    torch.testing.assert_close(result["teacher.critic.weight.0"][0], learner.critic.weight[0][0])


def test_the_loss_is_the_sum_of_its_parts():
    algorithm = mbml(kl_weight=0.3, reward_std=0.35, next_obs_std=0.4)
    batch, noise = example(algorithm)
    params = params_of(algorithm.nets)
    contexts, kept = np_relabel(batch, 0.35, 0.4)
    codes = np_mlp(params, "encoder", contexts)
    rows = algorithm.joined(torch.tensor(kept), noise["pick"]).numpy()
    posteriors = [np_posterior(codes[i][rows[i]]) for i in range(M)]
    kl = sum(np_kl(*p, np.zeros(L), np.ones(L)) for p in posteriors)
    z = torch.tensor(np.stack([mean + np.sqrt(v) * noise["z"][i].numpy() for i, (mean, v) in enumerate(posteriors)]))
    parts = algorithm.L_distil(params, batch, z[:, None].expand(-1, B, -1), noise["latent"])[:3]
    total, info = algorithm.loss(params, {}, batch, noise)
    expected = np_triplet(codes, kept, 2.0) + 0.3 * kl + sum(map(float, parts))
    assert float(total) == pytest.approx(expected, rel=1e-8)
    assert float(info["kl"]) == pytest.approx(kl / M)
    assert float(info["relabelled"]) == pytest.approx(kept.sum() / (M * (M - 1) * C))
    assert float(info["saturated_logged"]) == pytest.approx(float((batch["act"].abs() > 0.99).double().mean()))


def test_each_loss_moves_its_own_network_and_q_the_encoder_too():
    algorithm = mbml(kl_weight=0.0, margin=-1e9)  # neither prior nor triplets
    batch, noise = example(algorithm)
    leaves = {name: value.requires_grad_() for name, value in params_of(algorithm.nets).items()}
    total, _ = algorithm.loss(leaves, {}, batch, noise)
    joint = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
    assert all(gradient.abs().sum() > 0 for gradient in joint.values())
    z = torch.zeros(M, B, L, dtype=torch.float64, requires_grad=True)
    q, candidate, perturbation, *_ = algorithm.L_distil(leaves, batch, z, noise["latent"])
    for loss, child in ((q, "critic"), (candidate, "vae"), (perturbation, "actor")):
        gradients = torch.autograd.grad(loss, [z, *leaves.values()], retain_graph=True, allow_unused=True)
        moved = {name.split(".")[0] for name, g in zip(leaves, gradients[1:], strict=True) if g is not None}
        assert moved == {child}
        assert (gradients[0] is not None) is (child == "critic")


def test_no_row_that_qualifies_leaves_losses_and_gradients_finite():
    algorithm = mbml(reward_std=0.0)
    batch, noise = example(algorithm, "reward")
    leaves = {name: value.requires_grad_() for name, value in params_of(algorithm.nets).items()}
    total, info = algorithm.loss(leaves, {}, batch, noise)
    assert info["relabelled"] == 0 and info["triplet_loss"] == 0
    gradients = torch.autograd.grad(total, list(leaves.values()))
    assert torch.isfinite(total) and all(torch.isfinite(g).all() for g in gradients)


# -- infer and act -----------------------------------------------------------------------------------------------------


def test_a_task_is_the_posterior_mean_and_does_not_depend_on_the_order():
    algorithm = mbml()
    params, (batch, _) = params_of(algorithm.nets), example(algorithm)
    context = batch["context"]
    z = algorithm.infer(params, context)
    assert z.shape == (M, 2, L)
    expected = np_posterior(np_mlp(params, "encoder", context[1, 0].numpy()))[0]
    np.testing.assert_allclose(z[1, 0], expected, rtol=1e-9)
    torch.testing.assert_close(z, algorithm.infer(params, context[:, :, [2, 0, 3, 1]]))


def test_the_action_is_the_best_of_ten_perturbed_candidates():
    algorithm = mbml(perturbation=0.3)
    params, (batch, _) = params_of(algorithm.nets), example(algorithm)
    obs, z = batch["obs"][0], torch.tensor(np.random.default_rng(4).normal(size=(B, L)))
    latents = torch.randn(10, 2 * A, generator=torch.Generator().manual_seed(0)).double().clamp(-0.5, 0.5).numpy()
    for n in range(B):
        state = np.tile(np.concatenate([obs[n].numpy(), z[n].numpy()]), (10, 1))
        acts = np.tanh(np_mlp(params, "vae.decoder", np.concatenate([state, latents], -1)))
        acts = np.clip(acts + 0.3 * np.tanh(np_mlp(params, "actor", np.concatenate([state, acts], -1))), -1, 1)
        values = np_mlp(params, "critic", np.concatenate([state, acts], -1))[:, 0]
        found = algorithm.act(params, obs, z)[n]
        np.testing.assert_allclose(found, acts[values.argmax()], rtol=1e-9)
        assert float(algorithm.q(params, obs[n], z[n], found)) == pytest.approx(values.max())
    assert algorithm.act(params, obs, z).shape == (B, A)
    assert algorithm.q(params, obs, z, batch["act"][0]).shape == (B,)


def test_a_single_model_is_no_ensemble():
    with pytest.raises(OmrlError, match="members must be at least 2"):
        MBMLConfig(members=1)


# -- the first stage ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "scale"), [("rew", 1.0), ("rew", 0.01), ("next_obs", 0.01)])
def test_ensemble_loss_equals_numpy(target, scale):
    algorithm = mbml(reward_scale=scale)
    net = mbml_teachers.build_model(target, S, A, algorithm.config, torch.Generator().manual_seed(0)).double()
    rng = np.random.default_rng(5)
    obs, act = rng.normal(size=(B, S)), rng.normal(size=(B, A))
    wanted = rng.normal(size=B) if target == "rew" else rng.normal(size=(B, S))
    batch = {name: torch.tensor(value) for name, value in {"obs": obs, "act": act, target: wanted}.items()}
    params = params_of(net)
    found, info = mbml_teachers.model_loss(net, target, algorithm.config, params, {}, batch, {})
    rows = np.concatenate([obs, act], -1)
    predicted = np.stack([np_mlp(params, f"{target}_model", rows, k) for k in range(K)])
    scaled = wanted * scale if target == "rew" else wanted
    errors = [np.mean((p - scaled.reshape(B, -1)) ** 2) for p in predicted]
    assert float(found) == pytest.approx(sum(errors))
    assert float(info["error"]) == pytest.approx(np.sqrt(np.mean(errors)))
    assert float(info["spread"]) == pytest.approx(predicted.std(0, ddof=1).mean())


@pytest.mark.parametrize(("dense", "scale"), [(False, 1.0), (True, 1.0), (False, 0.01)])
def test_teacher_loss_is_bcq_with_a_bellman_target(dense, scale):
    algorithm = mbml(dense_reward=dense, reward_scale=scale, gamma=0.8, perturbation=0.2)
    nets = mbml_teachers.build_teacher(S, A, algorithm.config, torch.Generator().manual_seed(0)).double()
    params = params_of(nets)
    targets = {name: value + 0.05 for name, value in params.items() if name.startswith(("actor", "critic"))}
    rng = np.random.default_rng(6)
    shapes = {"obs": (B, S), "next_obs": (B, S), "act": (B, A), "rew": (B,), "rew_dense": (B,)}
    batch = {name: torch.tensor(rng.uniform(-0.9, 0.9, size=shape)) for name, shape in shapes.items()}
    batch["term"] = torch.tensor([0.0, 1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    one = {name: value[None] for name, value in batch.items()}
    noise = {name: x[0].double() for name, x in bcq.noise(one, torch.Generator()).items()}
    # The target: the best of ten candidates of the target policy, by 0.75 min + 0.25 max of the target critics.
    states = np.repeat(batch["next_obs"].numpy()[:, None], 10, axis=1)
    latents = noise["next_latents"].clamp(-0.5, 0.5).numpy()
    acts = np.tanh(np_mlp(params, "vae.decoder", np.concatenate([states, latents], -1)))
    acts = np.clip(acts + 0.2 * np.tanh(np_mlp(targets, "actor", np.concatenate([states, acts], -1))), -1, 1)
    q = np.stack([np_mlp(targets, "critic", np.concatenate([states, acts], -1), k)[..., 0] for k in range(2)])
    value = (0.75 * q.min(0) + 0.25 * q.max(0)).max(-1)
    reward = batch["rew_dense" if dense else "rew"].numpy()
    y = scale * reward + 0.8 * (1 - batch["term"].numpy()) * value
    rows = np.concatenate([batch["obs"].numpy(), batch["act"].numpy()], -1)
    expected = sum(np.mean((np_mlp(params, "critic", rows, k)[:, 0] - y) ** 2) for k in range(2))
    total, info = mbml_teachers.teacher_loss(nets, algorithm.config, params, targets, batch, noise)
    assert float(info["critic_loss"]) == pytest.approx(float(expected), rel=1e-9)
    # The autoencoder, and minus the first critic's value of a perturbed candidate of the latent.
    obs, act = batch["obs"].numpy(), batch["act"].numpy()
    mean, log_std = np.split(np_mlp(params, "vae.encoder", rows), 2, -1)
    code = mean + np.exp(log_std) * noise["vae"].numpy()
    error = np.tanh(np_mlp(params, "vae.decoder", np.concatenate([obs, code], -1))) - act
    vae = np.mean(error**2) + 0.25 * np.mean(mean**2 + np.exp(2 * log_std) - 1 - 2 * log_std)
    latent = np.clip(noise["latent"].numpy(), -0.5, 0.5)
    own = np.tanh(np_mlp(params, "vae.decoder", np.concatenate([obs, latent], -1)))
    own = np.clip(own + 0.2 * np.tanh(np_mlp(params, "actor", np.concatenate([obs, own], -1))), -1, 1)
    value = np_mlp(params, "critic", np.concatenate([obs, own], -1), 0)[:, 0].mean()
    assert float(total) == pytest.approx(float(expected + vae - value), rel=1e-9)
    assert (float(info["vae_loss"]), float(info["q"])) == pytest.approx((float(vae), float(value)), rel=1e-9)
