"""Random numbers: known answers of the generator, distributions, independence of order."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import random


@pytest.mark.parametrize(("key", "counter", "wanted"), [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0))])
def test_known_answers_of_threefry(key, counter, wanted):
    """The vectors that the authors publish with their generator."""
    key = np.array(key, np.uint32)
    words = [tw.asarray(np.array([c], np.uint32)) for c in counter]
    assert tuple(w.item() for w in random.threefry(tw.asarray(key), *words)) == wanted
    assert tuple(random._threefry_words(key, *counter)) == wanted


def test_draws_are_functions_of_the_key():
    key = random.key(5)
    a, b = random.normal(key, (3, 4)), random.normal(random.key(5), (3, 4))
    assert (a == b).all()
    assert not (a == random.normal(random.key(6), (3, 4))).any()
    one, two = random.split(key)
    assert not (random.uniform(one, 5) == random.uniform(two, 5)).any()
    assert random.split(key, 3).shape == (3, 2)
    assert len({tuple(k.tolist()) for k in random.split(key, 100)}) == 100
    assert random.fold_in(key, 3).tolist() != random.fold_in(key, 4).tolist()
    assert random.key(2**64 + 5).tolist() == key.tolist()
    assert random.key(-1).tolist() == [0xFFFFFFFF] * 2
    assert random.key(tw.asarray(7)).tolist() == random.key(7).tolist()


def test_the_shape_does_not_change_the_stream():
    key = random.key(0)
    long = random.bits(key, 12).numpy()
    np.testing.assert_array_equal(random.bits(key, (3, 4)).numpy().ravel(), long)
    np.testing.assert_array_equal(random.bits(key, 5).numpy(), long[:5])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform(dtype):
    draw = random.uniform(random.key(1), 20000, dtype)
    values = np.asarray(draw).astype("float64")
    assert draw.dtype == dtype
    assert values.min() >= 0
    assert values.max() < 1
    assert abs(values.mean() - 0.5) < 0.02
    assert abs(values.var() - 1 / 12) < 0.005
    scaled = random.uniform(random.key(1), 200, low=-2, high=3).numpy()
    assert scaled.min() >= -2
    assert scaled.max() < 3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal(dtype):
    values = random.normal(random.key(2), (100, 200), dtype).numpy()
    assert values.dtype == dtype
    assert np.isfinite(values).all()
    assert abs(values.mean()) < 0.03
    assert abs(values.std() - 1) < 0.03
    assert abs((np.abs(values) < 1).mean() - 0.6827) < 0.02
    moved = random.normal(random.key(2), (100, 200), dtype, mean=3, std=2).numpy()
    np.testing.assert_allclose(moved, values * 2 + 3, rtol=1e-5)


def test_integers_and_choices():
    values = random.integers(random.key(3), -3, 4, 7000).numpy()
    counts = np.bincount(values + 3, minlength=7)
    assert counts.size == 7
    assert abs(counts - 1000).max() < 150
    assert random.integers(random.key(3), 0, 256, 5, dtype="uint8").dtype == tw.uint8
    wide = random.integers(random.key(3), -2**63, 2**63 - 1, 100).numpy()
    assert (wide < 0).any()
    assert (wide > 0).any()
    assert abs(random.bernoulli(random.key(4), 0.3, 5000).mean().item() - 0.3) < 0.03
    assert sorted(random.permutation(random.key(5), 20).tolist()) == list(range(20))
    rows = random.permutation(random.key(5), np.arange(12).reshape(6, 2)).numpy()
    assert sorted(map(tuple, rows)) == [(i, i + 1) for i in range(0, 12, 2)]
    assert set(random.choice(random.key(6), np.array([2, 5]), 50).tolist()) == {2, 5}
    logits = np.log(np.array([0.2, 0.8], "float32"))
    drawn = random.categorical(random.key(7), np.broadcast_to(logits, (4000, 2)))
    assert abs(drawn.astype("float32").mean().item() - 0.8) < 0.03


def test_the_global_generator():
    random.seed(3)
    first = [random.rand(2).tolist(), random.randn(2).tolist(), random.randint(0, 9, 4).tolist()]
    random.seed(3)
    assert [random.rand(2).tolist(), random.randn(2).tolist(),
            random.randint(0, 9, 4).tolist()] == first
    assert random.rand().shape == ()


def test_a_tracer_can_hand_out_the_keys():
    keys = [random.key(1), random.key(2)]
    source = iter(keys)
    random.seed(0)
    with random.GENERATOR.redirect(lambda: next(source)):
        a, b = random.rand(3), random.rand(3)
    assert a.tolist() == random.uniform(keys[0], 3).tolist()
    assert b.tolist() == random.uniform(keys[1], 3).tolist()
    assert random.GENERATOR.count == 0
