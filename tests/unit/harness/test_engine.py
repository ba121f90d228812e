"""Slots, groups, attempts and grading; field cases 3.6, 3.7, 5.2, 5.3, 10.3."""

import asyncio
import gc
import os
import threading
import weakref

import pytest

from arkdev import (
    GroupGraderResult,
    InferenceProxy,
    RolloutResult,
    Runtime,
    group_grader,
    rollout,
    single_grader,
    wrap_client_inplace,
)
from arkdev.errors import EndpointResponseError, LateCallError
from arkdev.harness.engine import Engine, EngineSettings
from arkdev.harness.grading import weighted_rewards
from arkdev.harness.statistics import RunStatistics
from arkdev.plugin.exceptions import RolloutRetryException
from arkdev.runs.records import GraderRecord, Verdict
from arkdev.sessions.session import RetryPolicy
from tests.running import LINE, always_one, answer, as_grader, running, sample_to_run

QUESTION = {"model": "m", "messages": LINE["messages"]}


@rollout
async def asks(context, proxy, sample):
    await proxy.async_rollout_client().chat.completions.create(**QUESTION)


@rollout
async def silent(context, proxy, sample):
    return None


def lines(count):
    return [{**LINE, "extra": {"index": index}} for index in range(count)]


# --- slots


class Occupancy:
    """How many rollouts are inside at once."""

    def __init__(self):
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self):
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_):
        with self._lock:
            self.now -= 1


@pytest.mark.parametrize("size", [1, 16, 512])
async def test_exactly_as_many_sync_rollouts_as_slots_run_at_once(size):
    barrier, occupancy = threading.Barrier(size), Occupancy()

    @rollout
    def meets_the_others(context, proxy, sample):
        with occupancy:
            barrier.wait(timeout=20)

    async with running() as run:
        await run.samples(meets_the_others, lines=[LINE] * 2 * size, concurrency=size)
    assert [f.record.attempts[0].error for f in run.finished] == [None] * 2 * size
    assert occupancy.most == size


@pytest.mark.parametrize("size", [1, 16, 512])
async def test_exactly_as_many_async_rollouts_as_slots_run_at_once(size):
    barrier, occupancy = asyncio.Barrier(size), Occupancy()

    @rollout
    async def meets_the_others(context, proxy, sample):
        with occupancy:
            async with asyncio.timeout(20):
                await barrier.wait()

    async with running() as run:
        await run.samples(meets_the_others, lines=[LINE] * 2 * size, concurrency=size)
    assert [f.record.attempts[0].error for f in run.finished] == [None] * 2 * size
    assert occupancy.most == size


async def test_the_rollouts_of_one_sample_share_the_slots_with_others():
    barrier, occupancy = asyncio.Barrier(6), Occupancy()

    @rollout
    async def meets_the_others(context, proxy, sample):
        with occupancy:
            async with asyncio.timeout(5):
                await barrier.wait()

    async with running() as run:
        await run.samples(meets_the_others, lines=[LINE] * 3, n=4, concurrency=6)
    assert {f.record.verdict for f in run.finished} == {Verdict.SUCCESS}
    assert occupancy.most == 6


async def test_grading_holds_no_slot():
    started = asyncio.Semaphore(0)

    @rollout
    async def counts(context, proxy, sample):
        started.release()

    @group_grader(runtime=Runtime(request_concurrency=1))
    async def waits_for_all_rollouts(context, sample, trajectories):
        async with asyncio.timeout(5):
            for _ in range(6):
                await started.acquire()
        for _ in range(6):
            started.release()
        return [1.0]

    async with running() as run:
        groups = await run.samples(counts, waits_for_all_rollouts, lines=lines(6), concurrency=1)
    assert [group.rewards for group in groups] == [(1.0,)] * 6


async def test_rollouts_begin_in_the_order_of_the_data_and_read_it_as_they_go():
    begun, read = [], []

    @rollout
    async def notes(context, proxy, sample):
        begun.append((sample.extra["index"], len(read)))

    def data():
        for index, line in enumerate(lines(5)):
            read.append(index)
            yield sample_to_run(line, index=index)

    async with running() as run:
        engine = Engine(
            run.runner(notes),
            run.grading(always_one),
            EngineSettings(concurrency=1),
            on_rollout=run.finished.append,
            on_group=run.groups.append,
        )
        await engine.run(data())
    assert begun == [(index, index + 1) for index in range(5)]
    assert engine.num_busy == 0


# --- attempts and verdicts


def scripted(outcomes):
    """A rollout that makes one call and then does what `outcomes` says, attempt by attempt."""
    attempts = {}

    @rollout
    async def scripted_rollout(context, proxy, sample):
        key = sample.extra["index"]
        number = attempts[key] = attempts.get(key, -1) + 1
        await proxy.async_rollout_client().chat.completions.create(
            model="m", messages=[{"role": "user", "content": f"attempt {number}"}]
        )
        script = outcomes[key]
        outcome = script[min(number, len(script) - 1)]
        if isinstance(outcome, Exception):
            raise type(outcome)(*outcome.args)  # a new one: its traceback holds the frames
        return outcome

    return scripted_rollout


RETRY, FAILURE, DISCARD = ({"status": s, "error": s} for s in ("retry", "failure", "discard"))
STATE_MACHINE = [
    # script of one rollout; attempts; the rollout's verdict; reward
    ([RETRY, RETRY, None], "retry retry success", Verdict.SUCCESS, 1.0),
    ([FAILURE, ValueError("x"), RETRY, None], "failure failure retry success", "success", 1.0),
    ([RETRY], "retry retry retry retry", Verdict.RETRY, None),
    ([RolloutRetryException("busy")], "retry retry retry retry", Verdict.RETRY, None),
    ([FAILURE], "failure failure failure failure", Verdict.FAILURE, None),
    ([ValueError("坏")], "failure failure failure failure", Verdict.FAILURE, None),
    ([DISCARD], "discard", Verdict.DISCARD, None),
    ([RETRY, DISCARD], "retry discard", Verdict.DISCARD, None),
    ([None], "success", Verdict.SUCCESS, 1.0),
    ([RolloutResult(extra={"a": 1})], "success", Verdict.SUCCESS, 1.0),
]


async def test_every_status_leads_where_the_contract_says():
    plugin = scripted([script for script, *_ in STATE_MACHINE])
    async with running() as run:
        groups = await run.samples(plugin, lines=lines(len(STATE_MACHINE)))
    records = {f.record.sample_index: f.record for f in run.finished}
    assert len(records) == len(groups) == len(STATE_MACHINE)
    for index, (_, attempts, verdict, reward) in enumerate(STATE_MACHINE):
        record = records[index]
        assert [attempt.verdict for attempt in record.attempts] == attempts.split()
        assert [attempt.num_turns for attempt in record.attempts] == [1] * len(record.attempts)
        assert (record.verdict, groups[index].verdict) == (verdict, verdict)
        assert groups[index].rewards == (reward,)
        assert len(record.turns) == 1, "turns of an earlier attempt were kept"
        last = f"attempt {len(record.attempts) - 1}"
        assert [m["content"] for m in record.messages] == [last, "fine"]


async def test_one_exception_leaves_its_siblings_alone():
    @rollout
    async def seventh_fails(context, proxy, sample):
        await proxy.async_rollout_client().chat.completions.create(**QUESTION)
        if sample.extra["index"] == 7:
            raise ValueError("坏")

    async with running() as run:
        groups = await run.samples(seventh_fails, lines=lines(16), concurrency=16)
        others = asyncio.all_tasks() - {asyncio.current_task()}
    assert [group.sample_index for group in groups if group.rewards == (1.0,)] == [
        index for index in range(16) if index != 7
    ]
    record = next(f.record for f in run.finished if f.record.sample_index == 7)
    last = record.attempts[-1]
    assert (last.error, groups[7].error) == ("ValueError: 坏", "ValueError: 坏")
    assert "in seventh_fails" in last.traceback
    assert "arkdev/" not in last.traceback
    assert others == set()


BAD_RESULTS = {
    "a status set to nonsense": lambda: _changed(RolloutResult(), "nice"),
    "a word": lambda: "success",
    "a number": lambda: 1.0,
}


def _changed(result, status):
    result.status = status
    return result


@pytest.mark.parametrize("case", BAD_RESULTS)
async def test_a_result_that_cannot_be_read_is_a_failure(case):
    @rollout
    async def odd(context, proxy, sample):
        return BAD_RESULTS[case]()

    async with running() as run:
        (group,) = await run.samples(odd)
    assert (group.verdict, group.rewards) == (Verdict.FAILURE, (None,))
    assert "PluginResultError" in group.error


async def test_a_rollout_that_cancels_itself_or_exits_is_a_failure_and_costs_no_slot():
    @rollout
    async def tries_to_get_out(context, proxy, sample):
        if sample.extra["index"] % 2:
            raise SystemExit(2)
        raise asyncio.CancelledError

    async with running() as run:
        groups = await run.samples(tries_to_get_out, lines=lines(6), concurrency=2)
    assert [group.verdict for group in groups] == [Verdict.FAILURE] * 6
    assert "CancelledError" in groups[0].error
    assert "sys.exit(2)" in groups[1].error


# --- groups


async def test_a_discard_drops_its_group_and_begins_no_further_sibling():
    begun = []

    @rollout
    async def second_discards(context, proxy, sample):
        begun.append(sample.extra["index"])
        if begun.count(1) == 2 and sample.extra["index"] == 1:
            return {"status": "discard", "error": "bad sample"}
        return None

    async with running() as run:
        groups = await run.samples(second_discards, lines=lines(3), n=4, concurrency=1)
    assert [begun.count(index) for index in range(3)] == [4, 2, 4]
    assert [group.verdict for group in groups] == ["success", "discard", "success"]
    assert groups[1].trajectory_ids == ("1.0", "1.1")
    assert (groups[1].rewards, groups[1].graders) == ((None, None), ())
    assert groups[1].error == "bad sample"
    assert groups[0].rewards == groups[2].rewards == (1.0,) * 4


async def test_siblings_under_way_when_one_discards_are_finished_and_dropped():
    release = asyncio.Event()

    @rollout
    async def first_discards(context, proxy, sample):
        if not release.is_set():
            release.set()
            return {"status": "discard"}
        await asyncio.sleep(0.01)
        return None

    async with running() as run:
        (group,) = await run.samples(first_discards, n=8, concurrency=3)
    assert group.trajectory_ids == ("0.0", "0.1", "0.2")
    assert (group.verdict, group.rewards) == (Verdict.DISCARD, (None,) * 3)


async def test_survivors_of_a_failure_are_graded_and_the_group_failed():
    seen = []

    @rollout
    async def second_fails(context, proxy, sample):
        await proxy.async_rollout_client().chat.completions.create(**QUESTION)
        if proxy.access.identity.generation == 1:
            raise ValueError("no")

    @group_grader
    def counts(context, sample, trajectories):
        seen.append(len(trajectories))
        return [1.0, 0.5][: len(trajectories)]

    async with running() as run:
        (group,) = await run.samples(second_fails, counts, n=3)
    assert seen == [2]
    assert (group.verdict, group.rewards) == (Verdict.FAILURE, (1.0, None, 0.5))
    assert group.graders[0].rewards == (1.0, 0.5)


async def test_the_mean_is_over_graded_rollouts_not_over_turns():
    turns = {0: 2, 1: 8, 2: 1}

    @rollout
    async def of_many_turns(context, proxy, sample):
        client = proxy.async_rollout_client()
        for _ in range(turns[sample.extra["index"]]):
            await client.chat.completions.create(**QUESTION)
        if sample.extra["index"] == 2:
            raise ValueError("no")

    @single_grader
    def first_is_right(context, sample, trajectory):
        return float(sample.extra["index"] == 0)

    async with running() as run:
        await run.samples(of_many_turns, first_is_right, lines=lines(3))
    statistics = RunStatistics(1)
    for finished in run.finished:
        statistics.add_trajectory(finished.record)
    for group in run.groups:
        statistics.add_group(group)
    summary = statistics.summary()
    assert (summary.reward.mean, summary.num_graded) == (0.5, 2)
    assert summary.verdicts["failure"] == 1


# --- grading

JUDGE_DOWN = EndpointResponseError("judge is down", status=503, is_transient=True)


def _raises(context, sample, trajectories):
    raise RuntimeError("grader broke")


async def _judge_is_down(context, sample, trajectories):
    raise JUDGE_DOWN


async def _takes_too_long(context, sample, trajectories):
    await asyncio.sleep(5)


def _takes_too_long_in_a_thread(context, sample, trajectories):
    threading.Event().wait(0.2)


BROKEN_GRADERS = {
    "raises": (_raises, "RuntimeError: grader broke"),
    "judge always 503": (_judge_is_down, "EndpointResponseError: judge is down"),
    "times out": (_takes_too_long, "PluginTimeoutError: grader took longer than 0.02 s"),
    "sync and times out": (_takes_too_long_in_a_thread, "PluginTimeoutError"),
    "returns nothing": (lambda c, s, t: None, "PluginResultError"),
    "returns NaN": (lambda c, s, t: [1.0, float("nan")], "rewards[1]=nan"),
    "returns None for one": (lambda c, s, t: [1.0, None], "rewards.1=None"),
    "returns too few": (lambda c, s, t: [1.0], "1 rewards for 2 trajectories"),
    "returns too many": (lambda c, s, t: [1.0] * 3, "3 rewards for 2 trajectories"),
    "exits": (lambda c, s, t: exit(1), "sys.exit(1)"),
}


@pytest.mark.parametrize("case", BROKEN_GRADERS)
async def test_a_grader_that_breaks_leaves_its_group_ungraded_and_never_zero(case):
    function, error = BROKEN_GRADERS[case]
    broken = group_grader(name="grader", runtime=Runtime(timeout=0.02))(function)
    async with running() as run:
        (group,) = await run.samples(asks, broken, n=2)
    (record,) = group.graders
    assert (group.verdict, group.rewards, record.rewards) == ("failure", (None,) * 2, (None,) * 2)
    assert (record.attempts, len(run.requests)) == (4, 2), "the grader alone runs again"
    assert error in record.error
    assert record.where.startswith(__file__)


async def test_ungraded_is_counted_beside_the_mean_of_the_graded():
    @group_grader
    def breaks_on_odd(context, sample, trajectories):
        if sample.extra["index"] % 2:
            raise RuntimeError("no")
        return [0.5] * len(trajectories)

    async with running() as run:
        await run.samples(asks, breaks_on_odd, lines=lines(4), n=2)
    statistics = RunStatistics(2)
    for finished in run.finished:
        statistics.add_trajectory(finished.record)
    for group in run.groups:
        statistics.add_group(group)
    summary = statistics.summary()
    assert (summary.num_graded, summary.num_ungraded, summary.reward.mean) == (4, 4, 0.5)


async def test_one_trajectory_that_cannot_be_graded_does_not_cost_the_others_their_reward():
    @single_grader
    def breaks_once(context, sample, trajectory):
        if trajectory.messages[-1].content == "answer 1":
            raise RuntimeError("no")
        return 1.0

    async with running(lambda _: answer(f"answer {len(run.requests)}")) as run:
        (group,) = await run.samples(asks, breaks_once, n=3, concurrency=1)
    assert (group.verdict, group.rewards) == (Verdict.FAILURE, (None, 1.0, 1.0))
    assert group.graders[0].error == "RuntimeError: no"


async def test_a_grader_of_weight_0_is_observed_and_decides_nothing():
    broken = group_grader(name="broken")(_raises)

    @group_grader
    def drops(context, sample, trajectories):
        return GroupGraderResult(status="discard", error="not counted")

    graders = [always_one, as_grader(broken, weight=0), as_grader(drops, weight=0)]
    async with running() as run:
        (group,) = await run.samples(asks, *graders, n=2)
    assert (group.verdict, group.rewards, group.error) == (Verdict.SUCCESS, (1.0, 1.0), None)
    assert [record.verdict for record in group.graders] == ["success", "failure", "discard"]
    assert [record.rewards for record in group.graders][1:] == [(None, None)] * 2


async def test_a_grader_with_weight_that_breaks_leaves_no_reward():
    broken = group_grader(name="broken")(_raises)
    async with running() as run:
        (group,) = await run.samples(asks, always_one, as_grader(broken, weight=0.1))
    assert (group.verdict, group.rewards) == (Verdict.FAILURE, (None,))
    assert group.graders[0].rewards == (1.0,)
    assert group.error == "RuntimeError: grader broke"


def test_weights_add_up_and_missing_stays_missing():
    def record(weight, *rewards):
        return GraderRecord("g", weight, Verdict.SUCCESS, rewards)

    def weighted(*graders, num_trajectories=2):
        return weighted_rewards(graders, num_trajectories=num_trajectories)

    assert weighted(record(0.5, 1.0, 0.0), record(2.0, 1.0, 1.0)) == [2.5, 2.0]
    assert weighted(record(1.0, 1.0, None), record(0.0, None, 1.0)) == [1.0, None]
    assert weighted(record(0.0, 1.0, 1.0)) == [None, None]
    assert weighted(record(-1.0, 1.0, 0.5)) == [-1.0, -0.5]


# --- timeouts


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_rollout_that_times_out_is_tried_again_and_leaves_nothing_behind(is_async):
    late, attempts = [], []
    ended = threading.Semaphore(0)

    def begin(proxy):
        attempts.append(proxy)
        return len(attempts) == 1

    @rollout(runtime=Runtime(timeout=0.1))
    async def asynchronous(context, proxy, sample):
        client = proxy.async_rollout_client()
        await client.chat.completions.create(**QUESTION)
        if begin(proxy):
            try:
                await asyncio.sleep(5)
            finally:
                try:
                    await client.chat.completions.create(**QUESTION)
                except LateCallError as error:
                    late.append(error)
                    ended.release()

    @rollout(runtime=Runtime(timeout=0.1))
    def synchronous(context, proxy, sample):
        client = proxy.rollout_client()
        client.chat.completions.create(**QUESTION)
        if begin(proxy):
            threading.Event().wait(0.2)
            try:
                client.chat.completions.create(**QUESTION)
            except LateCallError as error:
                late.append(error)
            ended.release()

    async with running(lambda _: answer(f"answer {len(run.requests)}")) as run:
        (group,) = await run.samples(asynchronous if is_async else synchronous)
        assert await asyncio.to_thread(ended.acquire, timeout=5)
    (finished,) = run.finished
    record = finished.record
    assert [attempt.verdict for attempt in record.attempts] == ["failure", "success"]
    assert record.attempts[0].error.startswith("PluginTimeoutError: ")
    assert "took longer than 0.1 s" in record.attempts[0].error
    assert record.attempts[0].where.startswith(__file__)
    assert [message["content"] for message in record.messages][1:] == ["answer 2"]
    assert (len(record.turns), len(late), len(run.requests)) == (1, 1, 2)
    assert (len(attempts[0].messages), group.rewards) == (2, (1.0,))


# --- what stays in memory


async def test_nothing_of_a_finished_rollout_stays_in_memory():
    alive = []

    @rollout
    def sync_one(context, proxy, sample):
        alive.extend(map(weakref.ref, (proxy, sample, proxy.access)))
        proxy.rollout_client().chat.completions.create(**QUESTION)

    @rollout
    async def async_one(context, proxy, sample):
        alive.extend(map(weakref.ref, (proxy, sample, proxy.access)))
        await proxy.async_rollout_client().chat.completions.create(**QUESTION)

    @single_grader
    def grader(context, sample, trajectory):
        alive.append(weakref.ref(trajectory))
        return 1.0

    async with running() as run:
        for plugin in (sync_one, async_one):
            await run.samples(plugin, grader, lines=lines(10))
        run.finished.clear()
        run.groups.clear()
        gc.collect()
        assert [reference() for reference in alive] == [None] * 80
        assert run.gateway._sessions == {}


def open_descriptors():
    return len(os.listdir("/dev/fd"))


async def test_500_rollouts_with_a_client_each_leave_no_descriptors():
    openai = pytest.importorskip("openai")
    alive = []

    @rollout
    def builds_its_own(context, proxy, sample):
        client = openai.OpenAI(base_url=proxy.url, api_key=proxy.jwt_token)
        wrap_client_inplace(client, proxy)
        client.chat.completions.create(**QUESTION)
        alive.append(weakref.ref(proxy))

    async with running(retries=RetryPolicy(max_retries=0)) as run:
        await run.samples(silent, lines=lines(8), concurrency=8)
        before = open_descriptors()
        await run.samples(builds_its_own, lines=lines(500), concurrency=8)
        assert {f.record.verdict for f in run.finished} == {Verdict.SUCCESS}
        run.finished.clear()
        gc.collect()
        await asyncio.sleep(0.05)
        assert open_descriptors() <= before + 20
        assert [proxy for proxy in alive if proxy() is not None] == []
    assert len(run.requests) == len(alive) == 500


async def test_the_proxy_of_a_rollout_is_made_afresh_for_each_attempt():
    proxies = []

    @rollout
    async def always_fails(context, proxy, sample):
        assert isinstance(proxy, InferenceProxy)
        assert all(proxy is not earlier for earlier in proxies)
        proxies.append(proxy)
        raise ValueError("no")

    async with running() as run:
        await run.rollout(always_fails)
    assert len({proxy.jwt_token for proxy in proxies}) == 4
    assert len({id(proxy.sample) for proxy in proxies}) == 4
