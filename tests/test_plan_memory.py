"""The memory plan and the caches of plans."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from tilewright.plan.cache import Cache
from tilewright.plan.memory import Lifetime, aligned, place

lifetimes = st.lists(st.builds(
    lambda n, first, length: Lifetime(n, first, first + length),
    st.integers(0, 5000), st.integers(0, 30), st.integers(0, 12)), max_size=40)


@given(lifetimes)
def test_values_that_live_together_never_overlap(lives):
    offsets, total = place(lives)
    spans = [(o, o + aligned(x.nbytes)) for o, x in zip(offsets, lives)]
    for i, a in enumerate(lives):
        assert offsets[i] % 64 == 0 and spans[i][1] <= total
        for j, b in enumerate(lives[:i]):
            if a.first <= b.last and b.first <= a.last:
                assert spans[i][1] <= spans[j][0] or spans[j][1] <= spans[i][0]


@given(lifetimes)
def test_the_area_is_no_larger_than_without_reuse(lives):
    assert place(lives)[1] <= sum(aligned(x.nbytes) for x in lives)


def test_a_chain_needs_room_for_two():
    chain = [Lifetime(1000, i, i + 1) for i in range(500)]
    assert place(chain)[1] == 2 * aligned(1000)


def test_a_freed_hole_beside_another_is_joined():
    lives = [Lifetime(640, 0, 0), Lifetime(640, 0, 1), Lifetime(640, 0, 0), Lifetime(1280, 2, 2)]
    assert place(lives)[1] == 3 * 640


def test_the_cache_drops_what_was_used_longest_ago():
    cache = Cache(entries=4)
    for i in range(4):
        cache.put(i, -i)
    assert cache.get(0) == 0
    cache.put(4, -4)
    assert cache.get(1) is None and cache.get(0) == 0 and cache.get(4) == -4
    assert len(cache) <= 4
    cache.clear()
    assert len(cache) == 0 and cache.get(4) is None


def test_the_cache_is_bounded_by_weight_but_keeps_the_newest():
    cache = Cache(entries=100, weight=10)
    cache.put("a", 1, weight=6)
    cache.put("b", 2, weight=6)
    assert cache.get("a") is None and cache.get("b") == 2
    cache.put("huge", 3, weight=1000)
    assert cache.get("huge") == 3 and len(cache) == 1
    cache.put("huge", 4, weight=1)
    cache.put("b", 2, weight=6)
    assert cache.get("huge") == 4 and cache.get("b") == 2


def test_the_cache_is_safe_under_threads():
    cache, wrong = Cache(entries=8), []

    def work(seed):
        for i in range(3000):
            key = (seed * 31 + i * 7) % 40
            found = cache.get(key)
            if found is None:
                cache.put(key, key * 2)
            elif found != key * 2:
                wrong.append(key)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong and len(cache) <= 8
