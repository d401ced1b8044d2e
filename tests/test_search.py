"""The beam search on a simulated device: equal decisions, counts, fates, budgets, interrupts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from search_kernels import KERNELS, SMALL, Watching, number_of, simulate
from search_tools import LIMITS, addition, lowered, product, rows, total

from tilewright.actions import Schedule, default_schedule, parse_schedule
from tilewright.backends import backend
from tilewright.errors import BackendError, Illegal
from tilewright.search import Budget, Record, search
from tilewright.search.decide import Rules
from tilewright.search.measurer import Failure
from tilewright.search.record import FATES, Final
from tilewright.search.simulated import COMPILE_MISHAPS, RUN_MISHAPS, Clock, Simulated

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def searched() -> dict[str, tuple[Record, Watching]]:
    """Every kernel's search, made when first asked for."""
    return {}


def found(searched: dict, name: str) -> tuple[Record, Watching]:
    if name not in searched:
        watching = Watching(Simulated(clock=Clock(), limits=LIMITS))
        searched[name] = simulate(KERNELS[name](), watching=watching), watching
    return searched[name]


# -- decisions ---------------------------------------------------------------------------------

@pytest.mark.parametrize("name", KERNELS)
def test_decisions_are_the_golden_ones(searched, name, request):
    record, _ = found(searched, name)
    path = GOLDEN / f"search_{name}.txt"
    text = record.decisions() + "\n"
    if request.config.getoption("--update-golden"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "see --update-golden"


@pytest.mark.parametrize("name", ["add_3d", "vector_matrix"])
def test_equal_inputs_and_seed_give_equal_records_under_noise(name):
    kernel = KERNELS[name]()
    one, two, other = (simulate(kernel, seed=seed, noise=0.05, bursts=0.05)
                       for seed in (1, 1, 2))
    assert one.to_json() == two.to_json()
    assert one.to_json() != other.to_json()


@pytest.mark.parametrize("name", KERNELS)
def test_the_winner_is_never_slower_than_the_given(searched, name):
    record, _ = found(searched, name)
    assert record.best.seconds <= record.start.seconds
    assert record.best.fate == "timed" and record.gain >= 1
    assert record.winner == 0 or record.duel[0] == "a"


@pytest.mark.parametrize("name", ["matmul_512", "softmax", "permute"])
def test_plain_loops_become_fast_without_the_defaults(searched, name):
    """From the smallest parameters the search comes near what it finds from the defaults."""
    budget = replace(SMALL, sketches="bare", per_round=24, rounds=8)
    record = simulate(KERNELS[name](), Schedule(), budget)
    assert record.best.seconds <= 1.25 * found(searched, name)[0].start.seconds


def test_the_winners_schedule_can_be_applied(searched):
    for name in KERNELS:
        record, _ = found(searched, name)
        if record.best.alternative == 0:
            nest = parse_schedule(record.best.schedule).apply(KERNELS[name]())
            assert record.best.nest == f"form 0\n{nest}"


# -- counts and fates --------------------------------------------------------------------------

@pytest.mark.parametrize("name", KERNELS)
def test_each_distinct_program_is_compiled_once(searched, name):
    record, watching = found(searched, name)
    assert len(watching.sources) == len(set(watching.sources))
    assert len(watching.sources) == record.counts["compiled"] == record.counts["programs"]
    assert watching.device.compiled == record.counts["compiled"]


@pytest.mark.parametrize("name", KERNELS)
def test_counts_are_those_of_the_fates(searched, name):
    record, _ = found(searched, name)
    fates = Counter(t.fate for t in record.trials)
    assert record.counts["candidates"] == len(record.trials)
    assert record.counts["filtered"] == fates["filtered"]
    assert record.counts["timed"] == fates["timed"] + fates["slow"]
    assert len({t.nest for t in record.trials if t.nest}) == record.counts["distinct"]


@pytest.mark.parametrize("name", KERNELS)
def test_every_candidate_has_a_fate_and_a_reason(searched, name):
    record, _ = found(searched, name)
    for trial in record.trials:
        assert trial.fate in FATES
        assert trial.reason or trial.fate == "timed", trial
        assert bool(trial.samples) == (trial.fate in ("timed", "slow"))


def test_what_is_over_the_cap_is_never_rendered(monkeypatch):
    kernel = product(64, 64, 64)
    start = default_schedule(kernel, LIMITS)
    cap = sum(p.count for p in lowered(kernel, start).programs) + 10
    limits = replace(LIMITS, instruction_cap=cap)
    device = backend("interpreter")
    rendered: list[int] = []
    render = type(device).render

    def watched(self, programs, binding):
        rendered.append(sum(p.count for p in programs))
        return render(self, programs, binding)
    monkeypatch.setattr(type(device), "render", watched)
    record = simulate(kernel, start, replace(SMALL, per_round=200, rounds=1), limits)
    large = [t for t in record.trials if t.fate == "too_large"]
    assert large and all(str(cap) in t.reason for t in large)
    assert rendered and max(rendered) <= cap


@pytest.mark.parametrize("mishap", [*COMPILE_MISHAPS, *RUN_MISHAPS])
def test_failures_have_fates_and_never_win(mishap):
    kernel = addition(64, 64)
    sources: set[str] = set()

    def behave(source: str) -> str:
        if sources and number_of(source, 3) < 0.5 and source not in sources:
            return mishap
        sources.add(source)
        return ""

    def cost(source: str) -> float:  # what misbehaves claims to be fast
        return 1e-5 if source in sources else 1e-7
    record = simulate(kernel, behave=behave, cost=cost)
    fates = {t.fate for t in record.trials} - {"timed", "illegal", "duplicate", "filtered",
                                              "too_large"}
    wanted = {"rejected": "compile_error", "compiles forever": "timeout", "compiler dies": "crash",
              "compiler eats memory": "memory", "hangs": "timeout", "crashes": "crash",
              "eats memory": "memory", "returns zeros": "wrong", "slow": None,
              "crashes later": "crash"}[mishap]
    assert wanted is None or fates == {wanted}
    assert record.winner == 0 or mishap == "slow"
    assert record.best.seconds == pytest.approx(1e-5)


@pytest.mark.parametrize("seconds, samples", [(1e-5, 2), (1e-3, 1)])
def test_a_hundred_times_slower_costs_one_sample_or_two_short_ones(seconds, samples):
    kernel = addition(64, 64)
    seen: list[str] = []

    def behave(source: str) -> str:
        seen.append(source)
        return "" if source == seen[0] else "slow"
    record = simulate(kernel, budget=replace(SMALL, seconds=100.0), behave=behave,
                      cost=lambda source: seconds)
    slow = [t for t in record.trials if t.fate == "slow"]
    assert slow and all(len(t.samples) == samples for t in slow)
    assert record.winner == 0


def test_hostile_candidates_cost_no_more_than_their_limits():
    """Half of all candidates hang, crash or bomb; the search still ends with a true winner."""
    kernel = product(64, 64, 64)
    mishaps = [m for m in (*COMPILE_MISHAPS, *RUN_MISHAPS) if m != "slow"]
    given: list[str] = []

    def behave(source: str) -> str:
        given.append(source)
        number = number_of(source, 5)
        bad = source != given[0] and number < 0.5
        return mishaps[int(number * 2 * len(mishaps))] if bad else ""
    watching = Watching(Simulated(clock=Clock(), limits=LIMITS, behave=behave))
    budget = replace(SMALL, seconds=60.0)
    record = simulate(kernel, Schedule(), budget, watching=watching)
    assert record.gain > 2
    assert record.best.fate == "timed"
    longest = 4 * 10.0  # a batch of eight sources that never compile, on two compilers
    assert watching.device.clock() <= budget.seconds + longest


# -- the end -----------------------------------------------------------------------------------

@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("slow", [False, True])
def test_seconds_are_kept(seconds, slow):
    """Also where a run is a good share of the budget."""
    kernel = addition(64, 64) if slow else product(64, 64, 64)
    options = {"cost": lambda s: seconds * (0.008 + 0.004 * number_of(s, 1))} if slow else {}
    record = simulate(kernel, budget=Budget(seconds=seconds), **options)
    assert record.seconds["total"] <= 1.1 * seconds
    assert record.seconds["total"] >= 0.5 * seconds or "budget" not in record.why


@pytest.mark.parametrize("share", [0.02, 0.04])
def test_seconds_are_kept_where_a_batch_takes_a_good_share(share):
    """Eight candidates' second samples, or a few pairs after the round, would be beyond them."""
    record = simulate(product(64, 64, 64), budget=Budget(seconds=1.0),
                      cost=lambda source: share + 1e-4 * number_of(source, 1))
    assert record.seconds["total"] <= 1.1


def test_an_interrupt_at_any_moment_keeps_the_best_so_far():
    kernel = product(64, 64, 64)
    whole = Watching(Simulated(clock=Clock(), limits=LIMITS))
    budget = replace(SMALL, rounds=2)
    simulate(kernel, Schedule(), budget, watching=whole)
    begun = 2 + 4  # compile, begin, three samples of the given schedule at two places
    for moment in [*range(1, 12), *range(12, whole.calls + 1, 1 + whole.calls // 30)]:
        def interrupt(call: int, moment: int = moment) -> None:
            if call == moment:
                raise KeyboardInterrupt
        watching = Watching(Simulated(clock=Clock(), limits=LIMITS), interrupt)
        if moment <= begun:
            with pytest.raises(KeyboardInterrupt):
                simulate(kernel, Schedule(), budget, watching=watching)
            continue
        record = simulate(kernel, Schedule(), budget, watching=watching)
        assert record.why == "interrupted"
        best = min(t.seconds for t in record.trials if t.fate == "timed")
        assert record.best.seconds == best


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8, 0.9, 0.95, 0.99])
def test_an_interrupt_on_a_noisy_machine_keeps_a_clear_winner(share):
    """Bursts make the greatest of many samples meaningless: quartiles decide."""
    def run(fail=lambda call: None):
        device = Simulated(clock=Clock(), limits=LIMITS, noise=0.03, bursts=0.03, seed=1)
        watching = Watching(device, fail)
        return simulate(product(64, 64, 64), Schedule(), watching=watching), watching.calls

    whole, calls = run()
    assert whole.gain > 2

    def interrupt(call: int) -> None:
        if call == int(share * calls):
            raise KeyboardInterrupt
    record, _ = run(interrupt)
    assert record.why == "interrupted" and record.gain > 2


@pytest.mark.parametrize("number, most", [(0, 3), (None, 6)])
def test_code_that_fails_when_sampled_again_costs_itself_only(number, most):
    """The given schedule keeps its samples and is the answer; a candidate is out."""
    device = Simulated(clock=Clock(), limits=LIMITS, noise=0.02)
    sample, taken = device.sample, Counter[int]()

    def failing(handle: int):
        taken[handle] += 1
        if (handle == number if number is not None else handle) and taken[handle] > most:
            return Failure("crash", "the run died of signal 9")
        return sample(handle)
    device.sample = failing
    record = simulate(product(64, 64, 64), watching=Watching(device))
    assert record.winner == 0 and record.start.samples and record.why
    if number is None:
        assert "crash" in {t.fate for t in record.trials}
        assert record.start.fate == "timed"


def test_a_second_interrupt_ends_at_once():
    def interrupt(call: int) -> None:
        if call >= 40:
            raise KeyboardInterrupt
    watching = Watching(Simulated(clock=Clock(), limits=LIMITS), interrupt)
    record = simulate(product(64, 64, 64), Schedule(), watching=watching)
    assert record.why == "interrupted" and watching.calls == 41
    assert record.best.seconds == min(t.seconds for t in record.trials if t.fate == "timed")


def test_a_winner_that_fails_at_last_makes_way():
    """The fastest crashes when it is sampled again: the next one wins."""
    kernel = product(64, 64, 64)
    plain = simulate(kernel, Schedule())
    seen: list[str] = []

    def behave(source: str) -> str:
        seen.append(source)
        return ""
    watching = Watching(Simulated(clock=Clock(), limits=LIMITS, behave=behave))
    sample, handles = watching.device.sample, Counter()

    def crashing(handle: int):
        handles[handle] += 1
        result = sample(handle)
        if handles[handle] > 3 and result == plain.best.seconds:
            return Failure("crash", "the run died of signal 11")
        return result
    watching.device.sample = crashing
    record = simulate(kernel, Schedule(), watching=watching)
    assert record.best.seconds not in (plain.best.seconds, record.start.seconds)
    assert record.best.fate == "timed"
    assert "crash" in {t.fate for t in record.trials}


def test_a_given_schedule_that_cannot_run_is_refused():
    kernel = addition(8, 8)
    with pytest.raises(Illegal, match="cannot start from the given schedule"):
        simulate(kernel, parse_schedule("Split(nowhere, 4)"))
    for mishap, words in (("rejected", "cannot compile"), ("crashes", "cannot run"),
                          ("crashes later", "cannot run")):
        with pytest.raises(BackendError, match=f"{words} the given schedule"):
            simulate(kernel, behave=lambda source, mishap=mishap: mishap)


def test_other_forms_of_a_kernel_are_candidates():
    kernel = total(1 << 20)
    record = simulate(kernel, Schedule(), replace(SMALL, rounds=1))
    assert {t.alternative for t in record.trials if t.samples} == {0, 1}


def test_the_given_schedule_takes_over_the_recipe_that_made_it():
    """Else its parameters could not move."""
    kernel = rows(64, 512)
    record = simulate(kernel)
    assert record.start.fate == "timed"
    assert any(t.parent == 0 and not t.label.startswith("+") for t in record.trials)


# -- words -------------------------------------------------------------------------------------

def test_records_go_through_json(searched):
    record, _ = found(searched, "softmax")
    again = Record.from_json(record.to_json())
    assert again == record
    assert again.explain() == record.explain()
    assert again.decisions() == record.decisions()


def test_explain_tells_every_candidate_and_why_it_ended(searched):
    record, _ = found(searched, "matmul_512")
    text = record.explain()
    lines = text.splitlines()
    assert lines[0].startswith("search of ") and lines[0].endswith("beam 4")
    assert "starts" in lines and "round 1" in lines
    numbers = [int(line.split()[0]) for line in lines if line.startswith("  ")
               and line.split()[0].isdigit()]
    assert sorted(numbers) == list(range(len(record.trials)))
    assert sum("beam [" in line for line in lines) == len(record.rounds)
    assert f"winner {record.winner}, {record.gain:.3f} times as fast as given: {record.why}" in text
    assert lines[-2].startswith("counts candidates ") and lines[-1].startswith("seconds ")
    for t in record.trials:
        assert t.reason in text


def test_the_end_is_told(searched):
    record, _ = found(searched, "matmul_512")
    standings = [s.number for s in record.heat]
    assert len(set(standings)) == len(standings) >= 2
    assert all(1 <= s.places <= Rules().places and s.ratio >= 1 for s in record.heat)
    assert record.finals[0].number == standings[0]
    assert (record.finals[-1].verdict == "a") == (record.winner > 0)
    end = record.explain().split("\nthe end\n")[1]
    assert f": {standings[0]} 1.0" in end
    assert f"last comparison: {record.winner} is faster than the given schedule: " in end
    assert all(line in record.to_html() for line in record.ending() if "'" not in line)


def test_looks_that_overrule_are_told():
    final = Final(7, "tie", 1.004, 0.998, 1.01, looks=14, overruled="a")
    assert str(final) == ("7 is no different from the given schedule: 1.004 times as fast "
                          "(0.998 to 1.010); 14 looks all through the search say it is faster")


def test_watchers_see_the_record_grow():
    sizes: list[int] = []
    kernel = addition(64, 64)
    clock = Clock()
    device = Simulated(clock=clock, limits=LIMITS)
    search(kernel, Schedule(), backend("interpreter"), LIMITS, device, SMALL, clock,
           watch=lambda record: sizes.append(len(record.trials)))
    assert sizes == sorted(sizes) and len(set(sizes)) > 1
