"""SURFACE DEC: the five decorators, Runtime, and how decorated functions behave."""

import asyncio
import contextlib
import functools
import inspect
import threading

import pytest

from arkdev import (
    ChatCompletionSample,
    PluginContext,
    PluginInstance,
    Runtime,
    Trajectory,
    group_grader,
    group_rollout,
    rollout,
    single_grader,
    single_rollout,
)
from arkdev.errors import ConfigurationError, PluginLoadError, PluginSignatureError
from arkdev.plugin.decorators import PluginKind, plugin_of
from arkdev.plugin.loading import load_plugin, require_kind
from tests.running import LINE, as_grader, running

SAMPLE = ChatCompletionSample(**LINE)


def rollout_function(context, proxy, sample):
    return None


def grader_function(context, sample, trajectory):
    return 1.0


def group_grader_function(context, sample, trajectories):
    return [1.0]


@pytest.mark.parametrize(
    ("decorator", "function", "kind", "markers"),
    [
        (rollout, rollout_function, "single_rollout", {"_is_rollout", "_is_single_rollout"}),
        (single_rollout, rollout_function, "single_rollout", {"_is_rollout", "_is_single_rollout"}),
        (
            group_rollout,
            lambda context, proxy, sample, n_sample: None,
            "group_rollout",
            {"_is_rollout", "_is_group_rollout"},
        ),
        (single_grader, grader_function, "single_grader", {"_is_grader", "_is_single_grader"}),
        (group_grader, group_grader_function, "group_grader", {"_is_grader", "_is_group_grader"}),
    ],
)
def test_each_decorator_marks_its_kind(decorator, function, kind, markers):
    decorated = decorator(function)
    assert plugin_of(decorated).kind == kind
    assert {name for name in vars(decorated) if name.startswith("_is_")} == markers
    assert decorated.__wrapped__ is function


def test_the_three_call_forms_mean_the_same():
    bare, empty, full = (
        rollout(rollout_function),
        rollout()(rollout_function),
        rollout(name="rollout_function", description="", runtime=Runtime())(rollout_function),
    )
    assert plugin_of(bare) == plugin_of(empty) == plugin_of(full)
    with pytest.raises(PluginSignatureError, match="'weather' in place of a function"):
        rollout("weather")


def test_group_rollout_is_recognised_as_a_rollout():
    @group_rollout(name="tree")
    async def tree(context, proxy, sample, n_sample=1): ...

    loaded = load_plugin(tree, root=None)
    assert loaded.plugin.kind is PluginKind.GROUP_ROLLOUT
    assert require_kind(loaded, is_rollout=True) is loaded


def test_an_undecorated_function_is_no_plugin(tmp_path):
    (tmp_path / "graders.py").write_text("\ndef grade(context, sample, trajectories): ...\n")
    with pytest.raises(PluginLoadError, match="it has no decorator") as refused:
        load_plugin("graders:grade", root=tmp_path)
    assert refused.value.where == f"{tmp_path}/graders.py:2"


def test_a_name_defaults_to_the_function_and_a_description_to_nothing():
    plugin = plugin_of(rollout(rollout_function))
    assert (plugin.name, plugin.description) == ("rollout_function", "")
    named = plugin_of(rollout(name="weather", description="asks a tool")(rollout_function))
    assert (named.name, named.description) == ("weather", "asks a tool")


def test_runtime_has_the_documented_fields_and_defaults():
    runtime = Runtime()
    assert runtime.model_dump() == {
        "instance": PluginInstance.CPU1MEM2,
        "timeout": None,
        "max_concurrency": 10,
        "request_concurrency": 512,
        "min_replicas": None,
        "max_replicas": None,
    }
    full = Runtime(
        instance=PluginInstance.CPU4MEM8,
        timeout=900,
        max_concurrency=100,
        request_concurrency=1024,
        min_replicas=1,
        max_replicas=10,
    )
    assert plugin_of(rollout(runtime=full)(rollout_function)).runtime == full
    assert plugin_of(rollout(rollout_function)).runtime == runtime


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"timeout": 901}, "timeout=901.*at most 900"),
        ({"timeout": 0}, "timeout=0.*over 0"),
        ({"max_concurrency": 0}, "max_concurrency=0.*from 1 to 100"),
        ({"max_concurrency": 101}, "max_concurrency=101.*from 1 to 100"),
        ({"request_concurrency": 0}, "request_concurrency=0.*at least 1"),
        ({"min_replicas": -1}, "min_replicas=-1.*negative"),
        ({"max_replicas": 0}, "max_replicas=0.*at least 1"),
        ({"min_replicas": 2, "max_replicas": 1}, r"min_replicas \(2\) is larger"),
        ({"instance": "cpu3mem6"}, "instance='cpu3mem6'"),
        ({"timeouts": 3}, "no parameter 'timeouts'"),
    ],
)
def test_runtime_refuses_values_outside_its_limits(fields, problem):
    with pytest.raises(ConfigurationError, match=problem) as refused:
        Runtime(**fields)
    assert "test_decorators.py:" in refused.value.where


def test_every_instance_size_of_the_documents_exists():
    sizes = {
        f"CPU{cores}MEM{cores * per_core}" for cores in (1, 2, 4, 8, 16) for per_core in (2, 4, 8)
    }
    assert set(PluginInstance.__members__) == sizes
    assert Runtime(instance="cpu16mem128").instance is PluginInstance.CPU16MEM128
    assert Runtime(instance="CPU2MEM4").instance is PluginInstance.CPU2MEM4


async def test_a_sync_plugin_runs_in_a_thread():
    in_thread = []

    @rollout
    def blocking(context, proxy, sample):
        in_thread.append(threading.current_thread() is not threading.main_thread())
        barrier.wait(timeout=300)

    barrier = threading.Barrier(2)
    await asyncio.gather(blocking({}, None, SAMPLE), blocking({}, None, SAMPLE))
    assert in_thread == [True, True]


def monitor(function):
    """A decorator of the usual sort: transparent for sync and async functions."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def monitored(*args, **kwargs):
            return await function(*args, **kwargs)
    else:

        @functools.wraps(function)
        def monitored(*args, **kwargs):
            return function(*args, **kwargs)

    return monitored


def plain(function):
    """A decorator that is a plain function, whatever it decorates."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


async def async_rollout(context, proxy, sample):
    await asyncio.sleep(0)
    return {"extra": {"loop": threading.current_thread() is threading.main_thread()}}


def sync_rollout(context, proxy, sample):
    return {"extra": {"loop": threading.current_thread() is threading.main_thread()}}


@pytest.mark.parametrize("outside", [None, monitor, plain])
@pytest.mark.parametrize("inside", [None, monitor, plain])
@pytest.mark.parametrize(("function", "on_loop"), [(async_rollout, True), (sync_rollout, False)])
async def test_a_plugin_under_another_decorator_keeps_signature_and_kind(
    function, on_loop, inside, outside
):
    plugin = rollout(name="stacked")(inside(function) if inside else function)
    plugin = outside(plugin) if outside else plugin
    assert list(inspect.signature(plugin).parameters) == ["context", "proxy", "sample"]
    async with running() as run:
        finished = await run.rollout(plugin)
    assert plugin_of(plugin).name == "stacked"
    assert plugin_of(plugin).place.startswith(f"{__file__}:")
    assert finished.record.extra == {"loop": on_loop}


async def test_a_decorated_plugin_is_always_awaitable():
    sync_plugin, async_plugin = rollout(sync_rollout), rollout(async_rollout)
    assert inspect.iscoroutinefunction(sync_plugin)
    assert inspect.iscoroutinefunction(async_plugin)
    assert await sync_plugin({}, None, SAMPLE) == {"extra": {"loop": False}}
    assert await async_plugin(context={}, proxy=None, sample=SAMPLE) == {"extra": {"loop": True}}


def test_a_grader_is_called_by_hand_in_asyncio_run():
    @group_grader
    def lengths(context, sample, trajectories):
        return [float(len(t.messages)) for t in trajectories]

    trajectory = Trajectory(messages=SAMPLE.messages, usage={}, finish_reason="stop")
    assert asyncio.run(lengths({}, SAMPLE, [trajectory, trajectory])) == [1.0, 1.0]


@pytest.mark.parametrize("limit", [1, 3])
async def test_request_concurrency_limits_the_calls_of_a_grader(limit):
    now, most = 0, 0

    @contextlib.contextmanager
    def counted():
        nonlocal now, most
        now += 1
        most = max(most, now)
        yield
        now -= 1

    @single_grader(runtime=Runtime(request_concurrency=limit))
    async def slow(context, sample, trajectory):
        with counted():
            await asyncio.sleep(0.002)
        return 1.0

    async with running() as run:
        await run.samples(async_rollout_plugin, as_grader(slow), lines=[LINE] * 4, n=2)
    assert most == limit


@rollout
async def async_rollout_plugin(context, proxy, sample):
    return None


def ordered(context, sample, proxy): ...


def annotated(context: ChatCompletionSample, proxy, sample): ...


def other_record(context, proxy: PluginContext, data): ...


async def plural(context, sample, trajectories): ...


def singular(context, sample, trajectory): ...


def bare_record(context, sample, items: Trajectory): ...


MISPLACED = [
    (rollout, ordered, "@rollout .*: sample would be given the proxy", "def ordered(context, pr"),
    (single_rollout, annotated, "context is annotated with ChatCompletionSample", "def annotated("),
    (rollout, other_record, "proxy is annotated with PluginContext", "def other_record("),
    (single_grader, plural, "trajectories would be given the trajectory", "@group_grader"),
    (single_grader, plural, "@single_grader makes it be called", "async def plural("),
    (group_grader, singular, "trajectory would be given the trajectories", "@single_grader"),
    (group_grader, bare_record, "items is annotated with Trajectory", "def bare_record("),
]


@pytest.mark.parametrize(("decorator", "function", "problem", "hint"), MISPLACED)
def test_parameters_that_would_be_given_something_else_are_refused(
    decorator, function, problem, hint
):
    with pytest.raises(PluginSignatureError, match=problem) as refused:
        decorator(function)
    assert hint in refused.value.hint
    assert refused.value.where.startswith(__file__)


def test_names_of_one_s_own_are_left_alone():
    def grade(ctx, line, completion: Trajectory): ...

    def roll(_, inference, data: ChatCompletionSample, extra=None): ...

    assert plugin_of(single_grader(grade)).decorator == "single_grader"
    assert plugin_of(rollout(roll)).decorator == "rollout"


def test_runtime_may_be_a_dict_and_is_checked_as_well():
    given = rollout(runtime={"timeout": 30, "instance": "cpu2mem4"})(rollout_function)
    assert plugin_of(given).runtime == Runtime(timeout=30, instance="cpu2mem4")
    with pytest.raises(ConfigurationError, match=r"timeout=3000.*at most 900"):
        rollout(runtime={"timeout": 3000})
    with pytest.raises(PluginSignatureError, match="was given runtime=30"):
        rollout(runtime=30)


def test_a_limit_given_to_the_decorator_itself_says_where_it_belongs():
    with pytest.raises(PluginSignatureError, match="@rollout takes no timeout") as refused:
        rollout(timeout=3)
    assert "runtime=Runtime(timeout=3)" in refused.value.hint
    assert "test_decorators.py:" in refused.value.where
    with pytest.raises(PluginSignatureError, match="takes no nam") as unknown:
        rollout(nam="x")
    assert "name, description and runtime" in unknown.value.hint
