"""Meta-batches: from files that stay on disk the same rows as in memory, a pure function of seed and step."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from omrl.algorithms.algorithm import BatchSpec
from omrl.data import MetaDataset, Tensors
from omrl.errors import OmrlError
from omrl.learning import sampling
from omrl.learning.sampling import MetaSampler, Normalisation, OnDisk, StreamedSampler, fits, make_sampler, next_actions

ALL = BatchSpec(context_sets=2, next_actions=True, dense_rewards=True)
SIZES = {"spec": ALL, "learners": 2, "meta_batch": 3, "batch_size": 40, "context_size": 15}
ROW = ("obs", "act", "rew", "next_obs", "term", "rew_dense", "next_act", "has_next")


def logs(task, lengths, policies, rng):
    """Episodes of these lengths by these policies; obs = (task, row, noise) says where a row comes from."""
    rows = sum(lengths)
    last = np.cumsum(lengths) - 1
    obs = np.column_stack([np.full(rows, task), np.arange(rows), rng.normal(5, 3, rows)])
    return {
        "observations": obs,
        "actions": rng.uniform(0, 10, (rows, 2)),
        "rewards": rng.normal(size=rows),
        "next_observations": rng.normal(size=(rows, 3)),
        "terminations": np.isin(np.arange(rows), last[::2]),
        "truncations": np.isin(np.arange(rows), last[1::2]),
        "episode": np.repeat(np.arange(len(lengths)), lengths),
        "step": np.concatenate([np.arange(n) for n in lengths]),
        "policy_step": np.repeat(policies, lengths),
        "rewards_dense": rng.normal(size=rows),
    }


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Tasks of different lengths; the rows of a level do not all lie together."""
    rng = np.random.default_rng(0)
    tasks = {
        "a": logs(0, [5, 3, 8, 4], [0, 100, 0, 100], rng),
        "b": logs(1, [1, 2], [0, 100], rng),
        "c": logs(2, [30, 1, 30], [0, 0, 100], rng),
        "d": logs(3, [4] * 20, [0, 100] * 10, rng),
    }
    made = MetaDataset.from_arrays(tasks, action_low=[0, 0], action_high=[10, 20], varies="reward")
    return made.save(tmp_path_factory.mktemp("data") / "logs")


def streamed(data, normalise=None, **changes):
    return StreamedSampler(data, normalise or Normalisation.of(data), **{**SIZES, **changes})


def batch_of(sampler, step=0):
    """A batch that later steps do not overwrite."""
    sampler.prepare(step)
    return {name: values.clone() for name, values in sampler.draw(torch.Generator()).items()}


def where(batch, normalise, name="obs"):
    """Task and row of a batch's observations."""
    obs = batch[name][..., :3] * normalise.std + normalise.mean
    return obs[..., 0].round().long(), obs[..., 1].round().long()


@pytest.mark.parametrize("max_rows", [None, 1000, 9, 4, 1])
@pytest.mark.parametrize("level", ["mixed", "random", "expert"])
def test_a_streamed_row_is_the_row_that_would_be_in_memory(dataset, level, max_rows):
    view = dataset.level(level).select(["d", "a", "c", "b"])
    loaded = view.to("cpu", max_rows=max_rows)
    on_disk = OnDisk(view, max_rows)
    normalise = Normalisation.of(loaded)
    sampler = streamed(on_disk, normalise, batch_size=200, context_size=100)
    assert [task.length for task in on_disk.tasks] == loaded.length.tolist()
    next_act, has_next = next_actions(loaded)
    wanted = {
        "obs": normalise(loaded.obs),
        "act": loaded.act,
        "rew": loaded.rew,
        "next_obs": normalise(loaded.next_obs),
        "term": loaded.term.float(),
        "rew_dense": loaded.rew_dense,
        "next_act": next_act,
        "has_next": has_next,
    }
    positions = {}
    for t in range(4):
        for i in range(loaded.length[t]):
            task, row = loaded.obs[t, i, :2].long().tolist()
            positions[task, row] = t, i
    seen = set()
    for step in range(4):
        batch = batch_of(sampler, step)
        for sets in (batch, {"obs": batch["context"]}):
            place = torch.stack(where(sets, normalise)).flatten(1).T.tolist()
            tasks, rows = torch.tensor([positions[task, row] for task, row in place]).T
            seen |= set(zip(tasks.tolist(), rows.tolist(), strict=True))
            if sets is batch:
                for name in ROW:
                    found = batch[name].flatten(0, 2)
                    torch.testing.assert_close(found, wanted[name][tasks, rows], msg=f"{name}, {level}, {max_rows}")
            else:
                context = torch.cat([wanted[n].view(*loaded.rew.shape, -1) for n in ROW[:4]], -1)
                torch.testing.assert_close(batch["context"].flatten(0, 3), context[tasks, rows])
    assert len(seen) == len(positions)  # and every row is drawn at some time
    sampler.close()


def test_shapes_and_names_are_those_of_the_sampler_in_memory(dataset):
    loaded, on_disk = dataset.to("cpu"), OnDisk(dataset)
    memory = make_sampler(loaded, Normalisation.of(loaded), **SIZES)
    disk = make_sampler(on_disk, Normalisation.of(on_disk), **SIZES)
    assert isinstance(memory, MetaSampler) and isinstance(disk, StreamedSampler)
    memory.prepare(0)
    expected = memory.draw(torch.Generator())
    found = batch_of(disk)
    assert {name: (v.shape, v.dtype) for name, v in found.items()} == {
        name: (v.shape, v.dtype) for name, v in expected.items()
    }
    assert memory.transitions_per_update == disk.transitions_per_update == 120
    disk.close()


def test_tasks_are_drawn_without_replacement_and_all_alike(dataset):
    on_disk = OnDisk(dataset)
    normalise = Normalisation.of(on_disk)
    sampler = streamed(on_disk, normalise, batch_size=2)
    counts, different = torch.zeros(4), 0
    for step in range(300):
        batch = batch_of(sampler, step)
        task, _ = where(batch, normalise)
        context, _ = where({"obs": batch["context"]}, normalise)
        assert (task == task[..., :1]).all() and (context == task[..., :1, None]).all()
        for learner in task[..., 0].tolist():
            assert len(set(learner)) == 3
        different += bool((task[0] != task[1]).any())
        counts += task[..., 0].flatten().bincount(minlength=4)
    # 600 draws of 3 of 4 tasks: 450 of each, with a standard deviation of 10.6
    assert (counts - 450).abs().max() < 50
    assert different > 250  # learners draw their own: 23 of 24 times another order of tasks
    sampler.close()


def test_rows_and_the_two_contexts_are_independent(dataset):
    on_disk = OnDisk(dataset.select(["d"]))
    normalise = Normalisation.of(on_disk)
    sampler = streamed(on_disk, normalise, learners=1, meta_batch=1, batch_size=50, context_size=50)
    rows, first, second = [], [], []
    for step in range(100):
        batch = batch_of(sampler, step)
        _, context = where({"obs": batch["context"]}, normalise)
        rows.append(where(batch, normalise)[1].flatten())
        first.append(context[0, 0, 0])
        second.append(context[0, 0, 1])
    drawn = torch.stack([torch.cat(rows), torch.cat(first), torch.cat(second)]).double()
    assert (torch.corrcoef(drawn) - torch.eye(3)).abs().max() < 0.06  # 5,000 pairs: 4 standard deviations
    counts = torch.cat([*rows, *first, *second]).bincount(minlength=80)  # 187.5 of each row
    assert (counts - 187.5).abs().max() < 5 * 187.5**0.5
    sampler.close()


def test_a_batch_depends_on_seed_and_step_alone(dataset):
    on_disk = OnDisk(dataset)
    whole, resumed, other = streamed(on_disk), streamed(on_disk), streamed(on_disk, seed=1)
    batches = [batch_of(whole, step) for step in range(12)]
    for step in (7, 8, 3, 11):  # also back, and past what was read ahead
        again = batch_of(resumed, step)
        assert all(torch.equal(again[name], batches[step][name]) for name in again)
    assert not torch.equal(batches[0]["obs"], batches[1]["obs"])
    assert not torch.equal(batches[0]["obs"], batch_of(other)["obs"])
    for sampler in (whole, resumed, other):
        sampler.close()


def test_an_update_that_draws_more_than_once_gets_fresh_batches_in_place(dataset):
    sampler = streamed(OnDisk(dataset), draws=2)
    sampler.prepare(0)
    first, second, third = (sampler.draw(torch.Generator())["obs"] for _ in range(3))
    assert not torch.equal(first, second)
    assert first.data_ptr() == third.data_ptr()  # what a captured graph reads
    before = first.clone()
    sampler.prepare(1)
    assert not torch.equal(first, before)
    assert sampler.draw(torch.Generator())["obs"].data_ptr() == first.data_ptr()  # every update begins with the first
    sampler.close()


def test_one_task_gives_all_rows_of_the_meta_batch(dataset):
    sampler = streamed(OnDisk(dataset.select(["b"])), meta_batch=4, batch_size=8)
    batch = batch_of(sampler)
    assert batch["obs"].shape == (2, 1, 32, 3)
    assert sampler.transitions_per_update == 32
    sampler.close()


def test_data_without_dense_rewards_repeats_the_logged_ones(dataset, tmp_path):
    rows = {name: {k: v for k, v in dataset.rows(name).items() if k != "rewards_dense"} for name in ("a", "c")}
    plain = MetaDataset.from_arrays(rows, action_low=[0, 0], action_high=[10, 20], varies="reward")
    sampler = streamed(OnDisk(plain))  # and it need not be a file
    batch = batch_of(sampler)
    assert torch.equal(batch["rew_dense"], batch["rew"])
    sampler.close()


@pytest.mark.parametrize("max_rows", [None, 7])
def test_normalisation_in_one_pass_is_that_of_the_loaded_rows(dataset, max_rows, monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK_ROWS", 7)
    for view in (dataset, dataset.level("expert"), dataset.select(["b"])):
        found, wanted = Normalisation.of(OnDisk(view, max_rows)), Normalisation.of(view.to("cpu", max_rows=max_rows))
        torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found.std, wanted.std, rtol=1e-6, atol=1e-6)
    one = dataset.select(["b"]).level("random")
    assert Normalisation.of(OnDisk(one)).std.tolist() == [1, 1, 1]  # a single row is only centred


def test_normalisation_in_one_pass_is_exact_far_from_zero(tmp_path):
    rows = logs(0, [1000], [0], np.random.default_rng(0))
    rows["observations"] = rows["observations"] * 1e-3 + 4096
    dataset = MetaDataset.from_arrays({"far": rows}, action_low=[0, 0], action_high=[10, 20], varies="reward")
    found, wanted = Normalisation.of(OnDisk(dataset)), Normalisation.of(dataset.to("cpu"))
    torch.testing.assert_close(found.std, wanted.std, rtol=1e-6, atol=0)


def test_what_goes_wrong_in_a_reader_is_raised_in_training(dataset, monkeypatch):
    sampler = streamed(OnDisk(dataset))
    read = sampler._read

    def failing(step):
        if step == 2:
            raise OSError("the disk is gone")
        return read(step)

    monkeypatch.setattr(sampler, "_read", failing)
    sampler.prepare(0)
    sampler.prepare(1)
    with pytest.raises(OSError, match="the disk is gone"):
        sampler.prepare(2)
    sampler.close()


def test_a_damaged_file_is_found_before_training(dataset, tmp_path):
    copy = dataset.save(tmp_path / "copy")
    path = copy.path / copy.manifest.tasks[2].file
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(OmrlError, match="'c' does not match its checksum"):
        OnDisk(MetaDataset.open(copy.path))


def test_the_threads_end_with_training(dataset):
    def readers():
        return [thread for thread in threading.enumerate() if thread.name.startswith("omrl-reader")]

    sampler = streamed(OnDisk(dataset))
    sampler.prepare(0)
    assert readers()
    sampler.close()
    assert not readers()


def test_data_fits_when_it_takes_a_part_of_the_free_memory(dataset, monkeypatch):
    packed = 4 * 80 * (2 * 3 + 2 * 2 + 4) * 4  # four tasks, padded to the longest
    for free, expected in ((packed * 3.01, True), (packed * 2.99, False)):
        monkeypatch.setattr(sampling, "_free_host_memory", lambda free=free: free)
        assert fits(dataset, None, "cpu") is expected
    monkeypatch.setattr(sampling, "_free_host_memory", lambda: packed)
    assert fits(dataset, 10, "cpu")
    assert fits(dataset.select(["b"]), None, "cpu")
    monkeypatch.setattr(sampling, "_free_host_memory", lambda: packed * 4)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (packed, packed))
    assert not fits(dataset, None, "cuda")


def test_the_free_memory_is_a_plausible_number():
    assert 1e6 < sampling._free_host_memory() < 1e15


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_captured_graph_reads_the_batch_that_was_prepared(dataset):
    normalise = Normalisation.of(OnDisk(dataset))
    here, there = streamed(OnDisk(dataset), normalise), streamed(OnDisk(dataset, device="cuda"), normalise)
    there.prepare(0)
    graph, generator = torch.cuda.CUDAGraph(), torch.Generator("cuda")
    with torch.cuda.graph(graph):
        found = {name: values * 1.0 for name, values in there.draw(generator).items()}
    for step in range(30):
        there.prepare(step)
        graph.replay()
        wanted = batch_of(here, step)
        assert all(torch.equal(found[name].cpu(), wanted[name]) for name in wanted)
    here.close()
    there.close()


# -- data in memory ----------------------------------------------------------------------------------------------------


def tensors(tasks=4, rows=6):
    """Rows that say where they come from: obs = (task, row)."""
    task, row = np.meshgrid(np.arange(tasks), np.arange(rows), indexing="ij")
    obs = torch.tensor(np.stack([task, row], -1), dtype=torch.float32)
    episode, step = torch.tensor(row // 3, dtype=torch.int32), torch.tensor(row % 3, dtype=torch.int32)
    return Tensors(
        obs=obs,
        act=obs[..., 1:] / 10,
        rew=obs[..., 1],
        next_obs=obs + 0.5,
        term=torch.zeros(tasks, rows, dtype=torch.bool),
        episode=episode,
        step=step,
        length=torch.tensor([rows, rows, rows - 1, rows][:tasks]),
    )


PLAIN = Normalisation(torch.zeros(2), torch.ones(2))


def test_a_meta_batch_has_different_tasks_and_rows_of_its_own_task():
    sampler = MetaSampler(tensors(), PLAIN, spec=ALL, learners=3, meta_batch=3, batch_size=50, context_size=20)
    batch = sampler.draw(torch.Generator().manual_seed(0))
    task = batch["obs"][..., 0]
    assert task.shape == (3, 3, 50)
    assert (task == task[..., :1]).all()
    for learner in task[..., 0]:
        assert len(set(learner.tolist())) == 3
    assert (batch["context"][..., 0] == task[..., :1, None]).all()
    assert batch["context"].shape == (3, 3, 2, 20, 2 + 1 + 1 + 2)
    assert (batch["next_obs"] == batch["obs"] + 0.5).all()
    short = batch["obs"][..., 1][task == 2]
    assert short.max() == 4  # the shorter task's padding is never drawn


def test_fewer_tasks_than_the_meta_batch_give_more_rows_each():
    sampler = MetaSampler(tensors(tasks=2), PLAIN, spec=ALL, learners=1, meta_batch=4, batch_size=8, context_size=2)
    assert sampler.draw(torch.Generator())["obs"].shape == (1, 2, 16, 2)
    assert sampler.transitions_per_update == 32


def test_the_next_action_is_the_following_one_of_the_same_episode():
    act, there = next_actions(tensors(tasks=3))
    assert there[0].tolist() == [1, 1, 0, 1, 1, 0]
    assert there[2].tolist() == [1, 1, 0, 1, 0, 0]  # five rows: the last of them has no successor
    assert act[0, :, 0].tolist() == pytest.approx([0.1, 0.2, 0, 0.4, 0.5, 0])


def test_normalisation_is_that_of_the_rows_without_the_padding():
    data = tensors(tasks=3)
    found = Normalisation.of(data)
    rows = torch.cat([data.obs[i, :n] for i, n in enumerate(data.length.tolist())])
    torch.testing.assert_close(found.mean, rows.mean(0))
    torch.testing.assert_close(found.std, rows.std(0))


# -- what an algorithm asks for ----------------------------------------------------------------------------------------


def samplers(dataset, spec, **changes):
    """From memory and from disk."""
    sizes = {**SIZES, "spec": spec, **changes}
    for data in (dataset.to("cpu"), OnDisk(dataset)):
        sampler = make_sampler(data, Normalisation.of(data), **sizes)
        yield sampler, Normalisation.of(data)
        sampler.close()


def drawn_from(sampler, steps):
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        sampler.prepare(step)
        yield {name: values.clone() for name, values in sampler.draw(generator).items()}


ALWAYS = {"obs", "act", "rew", "next_obs", "term", "context", "task"}


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        (BatchSpec(), set()),
        (BatchSpec(next_actions=True), {"next_act", "has_next"}),
        (BatchSpec(dense_rewards=True), {"rew_dense"}),
        (BatchSpec(other_tasks=True), {f"other.{name}" for name in ("obs", "act", "rew", "next_obs", "term")}),
    ],
)
def test_a_batch_has_what_is_asked_for_and_nothing_else(dataset, spec, more):
    for sampler, _ in samplers(dataset, spec):
        batch = next(drawn_from(sampler, 1))
        assert set(batch) == ALWAYS | more
        assert batch["context"].shape == (2, 3, 1, 15, 3 + 2 + 1 + 3)


@pytest.mark.parametrize("sets", [0, 1, 2, 3])
def test_there_are_as_many_contexts_as_asked_for(dataset, sets):
    for sampler, normalise in samplers(dataset, BatchSpec(context_sets=sets)):
        batch = next(drawn_from(sampler, 1))
        assert batch["context"].shape == (2, 3, sets, 15, 9)
        task, _ = where({"obs": batch["context"]}, normalise)
        assert (task == where(batch, normalise)[0][:, :, :1, None]).all()


def test_a_third_context_changes_nothing_of_what_is_drawn_before_it(dataset):
    """Numbers are drawn for rows first: an algorithm that asks for less sees the same rows of the same tasks."""
    few, more = (next(drawn_from(next(samplers(dataset, BatchSpec(context_sets=n)))[0], 1))["task"] for n in (1, 3))
    assert torch.equal(few, more)


@pytest.mark.parametrize("size", [1, 4, 15, 40])
def test_consecutive_contexts_follow_an_episode(dataset, size):
    """Against the log itself, read row by row."""
    logged = {task.name: dataset.rows(task.name) for task in dataset.tasks}
    names = [task.name for task in dataset.tasks]
    for sampler, normalise in samplers(dataset, BatchSpec(context_sets=2, consecutive=True), context_size=size):
        begun = set()
        for batch in drawn_from(sampler, 40):
            task, row = where({"obs": batch["context"]}, normalise)
            for t, rows in zip(task.flatten(0, 2).tolist(), row.flatten(0, 2).tolist(), strict=True):
                assert len(set(t)) == 1
                episode = logged[names[t[0]]]["episode"]
                own = np.flatnonzero(episode == episode[rows[0]])
                # From where it begins, in order; a short episode is gone through again.
                start = rows[0] - own[0]
                np.testing.assert_array_equal(rows, own[0] + (start + np.arange(size)) % len(own))
                assert start + size <= len(own) or len(own) < size
                begun.add((t[0], rows[0]))
            rows_task, _ = where(batch, normalise)
            assert (rows_task == task[:, :, :1, 0]).all()
        longest = max(np.bincount(log["episode"]).max() for log in logged.values())
        assert len(begun) > (20 if size < longest else 10)  # they begin in many places


def test_rows_of_other_tasks_are_of_another_one_and_all_of_them_are_met(dataset):
    for sampler, normalise in samplers(dataset, BatchSpec(other_tasks=True)):
        met = set()
        for batch in drawn_from(sampler, 60):
            task, _ = where(batch, normalise)
            other, row = where({"obs": batch["other.obs"]}, normalise)
            assert other.shape == task.shape
            assert (other == other[..., :1]).all() and (other != task).all()
            met |= set(zip(task[..., 0].flatten().tolist(), other[..., 0].flatten().tolist(), strict=True))
            name = {0: "a", 1: "b", 2: "c", 3: "d"}[int(other[0, 0, 0])]
            rewards = dataset.rows(name)["rewards"][row[0, 0].numpy()]
            np.testing.assert_allclose(batch["other.rew"][0, 0], rewards, rtol=1e-6)
            acts = dataset.rows(name)["actions"][row[0, 0].numpy()]
            np.testing.assert_allclose(batch["other.act"][0, 0], acts / [5, 10] - 1, rtol=1e-5, atol=1e-5)
        assert len(met) == 4 * 3
