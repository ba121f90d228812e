"""SURFACE X, PKG-02, PROXY-04, WS-20, Y-33, Y-34: the import names of `ark_sdk`."""

import importlib
import inspect
import logging
import sys

import pytest

import arkdev
from arkdev.errors import ComesLaterError
from arkdev.plugin import ark_sdk

TYPES = "ark_sdk.types.pipeline_plugin"
RESOURCES = "ark_sdk.resources.pipeline_plugin"
PATHS = {
    "ark_sdk.resources.model_customization_job": "ModelCustomizationJob",
    RESOURCES: (
        "rollout single_rollout group_rollout single_grader group_grader "
        "GRPOPipeline PPOPipeline OPDPipeline PipelinePluginWrapper"
    ),
    f"{RESOURCES}.test_instance": "get_or_create_pipeline_plugin_test_instance",
    f"{RESOURCES}.pipeline_plugin": "GRPOPipeline PipelinePluginWrapper rollout",
    "ark_sdk.types.model_customization_job": (
        "ModelReference FoundationModelReference TrainingDataset Data CustomizationType "
        "ModelCustomizationJobRLDebugConfig Tag"
    ),
    "ark_sdk.types.model_customization_job.model_customization_job": "CustomizationType",
    TYPES: "Runtime PluginInstance GroupGraderResult SingleGraderResult RewardFunctionResult",
    f"{TYPES}.pipeline_plugin": "PluginStatus PluginContext",
    f"{TYPES}.rollout": (
        "Trajectory ChatCompletionSample ChatCompletionMessage ChatCompletionResponse "
        "RolloutInferenceProxy RolloutResult GroupRolloutResult SingleResponse ChatCompletion "
        "CriticContext TeacherContext"
    ),
    "ark_sdk.core.plugin.rollout.proxy": (
        "InferenceProxy Mode wrap_client_inplace wrap_async_client_inplace "
        "wrap_responses_client_inplace wrap_responses_async_client_inplace RolloutRetryException"
    ),
    "ark_sdk.core.plugin.rollout.trace": "coze_monitor",
    "ark_sdk.core.trace": "trace_monitor wrap_inplace_trace observe",
}
LATER = {
    "ark_sdk.core.client.ark": "default_ark_client",
    "ark_sdk.types.foundation_model.foundation_model": "ListFoundationModelVersionsRequest",
}


def each(paths):
    return [(module, name) for module, names in paths.items() for name in names.split()]


@pytest.fixture(autouse=True)
def served():
    ark_sdk.install()
    yield
    ark_sdk.uninstall()


def test_every_public_path_resolves():
    found = {}
    for module, name in each(PATHS):
        found[name] = getattr(importlib.import_module(module), name)
    assert [name for name, value in found.items() if isinstance(value, ark_sdk._Later)] == []
    for name in set(found) & set(arkdev.__all__):
        assert found[name] is getattr(arkdev, name)
    assert found["ChatCompletion"] is found["Trajectory"]
    assert found["RolloutInferenceProxy"] is found["InferenceProxy"]
    assert issubclass(found["RolloutRetryException"], Exception)


def test_the_whole_table_resolves():
    for module, names in ark_sdk.NAMES.items():
        imported = importlib.import_module(module)
        assert sorted(imported.__all__) == sorted(names)
        assert all(getattr(imported, name) is not None for name in names)


def test_import_statements_of_users_files_work():
    scope = {}
    exec(
        "import ark_sdk.core.trace\n"
        "from ark_sdk.core.plugin.rollout.proxy import InferenceProxy, Mode\n"
        "from ark_sdk.types.pipeline_plugin import *\n"
        "names = dir(ark_sdk.core.trace)\n",
        scope,
    )
    assert scope["Runtime"] is arkdev.Runtime
    assert "observe" in scope["names"]
    with pytest.raises(ImportError, match="cannot import name 'Nonsense'"):
        exec("from ark_sdk.core.trace import Nonsense")
    with pytest.raises(ModuleNotFoundError, match=r"ark_sdk\.nonsense"):
        importlib.import_module("ark_sdk.nonsense")


def test_nothing_is_left_when_the_names_are_no_longer_served():
    importlib.import_module("ark_sdk.core.trace")
    ark_sdk.install()
    ark_sdk.uninstall()
    assert [name for name in sys.modules if name.partition(".")[0] == "ark_sdk"] == []
    assert ark_sdk.installed_namesake() is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("ark_sdk")


def test_a_foreign_ark_sdk_is_hidden_and_reported(tmp_path, monkeypatch):
    (tmp_path / "ark_sdk").mkdir()
    (tmp_path / "ark_sdk/__init__.py").write_text("FOREIGN = True")
    monkeypatch.syspath_prepend(tmp_path)
    assert ark_sdk.installed_namesake() == "an ark_sdk package that no distribution owns"
    assert not hasattr(importlib.import_module("ark_sdk"), "FOREIGN")
    ark_sdk.uninstall()
    assert importlib.import_module("ark_sdk").FOREIGN
    ark_sdk.install()
    assert not hasattr(importlib.import_module("ark_sdk"), "FOREIGN")


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_tracing_names_are_pass_throughs(kind, caplog):
    from ark_sdk.core.plugin.rollout.trace import coze_monitor
    from ark_sdk.core.trace import observe, trace_monitor, wrap_inplace_trace

    async def asynchronous(place):
        return place

    def synchronous(place):
        return place

    function = asynchronous if kind == "async" else synchronous
    client = object()
    with caplog.at_level(logging.INFO):
        decorated = [
            trace_monitor(function),
            coze_monitor(function),
            observe(function),
            observe()(function),
            observe(name="tool", process_inputs=lambda inputs: inputs["kwargs"])(function),
        ]
        assert wrap_inplace_trace(client) is client
        for passed in decorated:
            result = passed("here")
            assert (await result if kind == "async" else result) == "here"
    for passed in decorated:
        assert inspect.iscoroutinefunction(passed) is (kind == "async")
        assert list(inspect.signature(passed).parameters) == ["place"]
    assert caplog.records == []


@pytest.mark.parametrize(("module", "name"), each(LATER))
def test_a_name_of_later_work_says_so(module, name):
    value = getattr(importlib.import_module(module), name)
    assert repr(value) == f"<{name}: not built yet>"
    with pytest.raises(ComesLaterError, match=f"{name} is not built yet: it comes with") as later:
        value(1, some="option")
    assert "test_ark_sdk_names.py:" in later.value.where


def test_every_name_that_arkdev_exports_exists():
    for name in arkdev.__all__:
        assert getattr(arkdev, name) is not None
    assert set(dir(arkdev)) >= set(arkdev.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = arkdev.nonsense
