"""``--endpoint local`` with real weights: the embedded model, and a random one from a folder."""

import asyncio
import json
import shutil
import warnings
from contextlib import asynccontextmanager
from pathlib import Path

import openai
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from arkdev.backends.local.loading import LoadingSettings, load_policy
from arkdev.backends.local.model_files import resolve_model
from arkdev.backends.local.server import PolicyServer
from arkdev.endpoints.endpoint import ModelRequest
from arkdev.errors import ConfigurationError, EndpointResponseError
from arkdev.flows.test_plan import plan_test
from arkdev.flows.test_request import PluginTestRequest
from arkdev.runs.saved_models import SavedModels
from arkdev.runs.writer import RunWriter
from tests.integration.workspace import Workspace, away_from_the_user
from tests.local.template_folders import QWEN3, write_folder

QUESTION = {"role": "user", "content": "How is the weather in Oslo?"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "获取指定地点的天气信息",
        "parameters": {"type": "object", "properties": {"location": {"type": "string"}}},
    },
}
JUDGED = """
    import openai
    from arkdev import single_grader

    @single_grader
    def one(context, sample, trajectory):
        client = openai.OpenAI(base_url="https://ark.cn-beijing.volces.com/api/v3", api_key="k")
        client.chat.completions.create(model="judge", messages=[{"role": "user", "content": "?"}])
        return 1.0
"""
RAW = """
    import openai
    from arkdev import rollout

    @rollout
    def answer(context, proxy, sample):
        client = openai.OpenAI(base_url=proxy.url, api_key=proxy.jwt_token)
        messages = sample.model_dump()["messages"]
        for _ in range(2):
            said = client.chat.completions.create(model="m", messages=messages)
            messages.append(said.choices[0].message.model_dump(exclude_none=True))
            messages.append({"role": "user", "content": "and tomorrow?"})
"""


BARE = """
    import json
    import urllib.request
    from arkdev import rollout

    @rollout
    def answer(context, proxy, sample):
        body = json.dumps({"model": "m", "messages": sample.model_dump()["messages"]}).encode()
        headers = {"Authorization": f"Bearer {proxy.jwt_token}"}
        request = urllib.request.Request(f"{proxy.url}/chat/completions", body, headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            assert json.load(response)["choices"]
"""
"""It needs no package inside a function."""


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    with away_from_the_user(tmp_path / "config", monkeypatch):
        yield


@pytest.fixture
def workspace(tmp_path):
    workspace = Workspace(tmp_path / "ws")
    workspace.samples("北京今天多少摄氏度？", "上海今天多少摄氏度？", "hello")
    return workspace


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory):
    """A folder with a random Qwen3 and a tokenizer of its own."""
    torch.manual_seed(1)
    folder = write_folder(tmp_path_factory.mktemp("qwen3"), QWEN3)
    config = Qwen3Config(
        vocab_size=len(AutoTokenizer.from_pretrained(folder)),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=600,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


@asynccontextmanager
async def loaded(model, **settings):
    policy = await asyncio.to_thread(
        load_policy, resolve_model(str(model), takes_adapter=True), LoadingSettings(**settings)
    )
    try:
        yield policy.endpoint
    finally:
        await policy.endpoint.close()


@asynccontextmanager
async def serving(model, **settings):
    async with loaded(model, **settings) as endpoint:
        server = PolicyServer(endpoint)
        url = await server.start()
        try:
            async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
                yield endpoint, client
        finally:
            await server.stop()


def tokens_of(run):
    return {record.trajectory_id: record for record in run.reader.tokens()}


def test_the_embedded_model_answers_a_test_with_the_tokens_that_were_sampled(workspace):
    run = workspace.run(endpoint="local", sampling={"max_new_tokens": 40}, seed=5)
    assert run.exit_code == 0 and run.summary.num_rollouts == 3
    tokens = tokens_of(run)
    assert len(tokens) == 3

    async def scored():
        async with loaded("tiny") as endpoint:
            records = tokens.values()
            return [await endpoint.engine.score(record.token_ids) for record in records]

    for record, scores in zip(tokens.values(), asyncio.run(scored()), strict=True):
        places = [place for place, weight in enumerate(record.loss_weight) if weight]
        assert places
        for place in places:
            assert record.logprobs[place] == pytest.approx(scores[place - 1], abs=2e-4)


def test_a_seed_makes_a_test_repeatable_whatever_runs_beside(workspace):
    runs = [
        workspace.run(
            endpoint="local",
            model="tiny",
            seed=5,
            concurrency=concurrency,
            num_generations=3,
            sampling={"max_new_tokens": 30},
        )
        for concurrency in (1, 9)
    ]
    first, second = map(tokens_of, runs)
    assert len(first) == 9 and first.keys() == second.keys()
    for name, record in first.items():
        assert record.token_ids == second[name].token_ids


def test_raw_clients_and_judges_are_served_too(workspace):
    workspace.write("plugins/rollout.py", RAW)
    workspace.write("plugins/grader.py", JUDGED)
    run = workspace.run(endpoint="local", model="tiny", sampling={"max_new_tokens": 20})
    assert run.exit_code == 0 and run.rewards == [(1.0,)] * 3
    assert run.outcome.judge_calls == 3
    for record in run.trajectories:
        assert len(record.turns) == 2
    for record in tokens_of(run).values():
        runs_of_sampled = "".join("x" if weight else "." for weight in record.loss_weight)
        assert len([part for part in runs_of_sampled.split(".") if part]) == 2


def test_plugins_in_instances_are_answered(workspace):
    workspace.write("plugins/rollout.py", BARE)
    run = workspace.run(
        endpoint="local",
        model="tiny",
        limit=1,
        faas=True,
        faas_engine="process",
        sampling={"max_new_tokens": 20},
    )
    assert run.exit_code == 0 and len(tokens_of(run)) == 1


def test_without_a_model_the_newest_training_answers_and_stays_when_resumed(workspace):
    tiny = resolve_model("tiny").folder
    trained = []
    for _ in range(2):
        writer = RunWriter.create(
            workspace.root / "runs", kind="train", settings={}, hashes={}, versions={}
        )
        saved = SavedModels(writer.folder, run_id=writer.run_id)
        for step, score in ((1, 0.7), (2, 0.4)):

            def write(folder: Path) -> None:
                shutil.copytree(tiny, folder, dirs_exist_ok=True)

            saved.save(step, write, score=score, facts={})
        writer.finish("finished", summary={})
        trained.append(writer.run_id)
    request = PluginTestRequest(start=workspace.root, endpoint="local")
    plan = plan_test(request)
    assert plan.endpoint.model == f"{trained[-1]}@1"
    assert any("step 1" in note and trained[-1] in note for note in plan.notes)
    named = plan_test(PluginTestRequest(start=workspace.root, endpoint="local", model=trained[0]))
    assert named.endpoint.model == f"{trained[0]}@1"
    run = workspace.run(endpoint="local", limit=1, sampling={"max_new_tokens": 8})
    settings = run.reader.manifest.settings["endpoint"]
    assert (settings["name"], settings["model"]) == ("local", f"{trained[-1]}@1")


async def test_any_openai_client_gets_the_same_answer_whole_and_streamed(qwen3):
    async with serving(qwen3) as (endpoint, client):
        num_pieces = 0
        for seed in range(4):
            asked = {"model": "m", "messages": [QUESTION], "seed": seed, "max_tokens": 30}
            whole = await client.chat.completions.create(tools=[WEATHER], **asked)
            stream = await client.chat.completions.create(
                tools=[WEATHER], stream=True, stream_options={"include_usage": True}, **asked
            )
            chunks = [chunk async for chunk in stream]
            said = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
            assert "".join(said).strip() == (whole.choices[0].message.content or "").strip()
            assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
            assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
            num_pieces += len([piece for piece in said if piece])
    assert num_pieces > 8 and whole.model == str(qwen3) == endpoint.model


async def test_a_following_turn_finds_what_was_computed(qwen3):
    async with serving(qwen3) as (_, client):
        asked = {"model": "m", "max_tokens": 30, "extra_body": {"return_token_ids": True}}
        first = await client.chat.completions.create(messages=[QUESTION], **asked)
        said = first.choices[0].message.model_dump(exclude_none=True)
        last = await client.chat.completions.create(messages=[QUESTION, said, QUESTION], **asked)
    before = [*first.prompt_token_ids, *first.choices[0].token_ids]
    assert last.prompt_token_ids[: len(before)] == before
    assert last.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens


async def test_responses_continue_by_id_and_stream(qwen3):
    async with serving(qwen3) as (_, client):
        asked = {"model": "m", "max_output_tokens": 20}
        first = await client.responses.create(input="hello", **asked)
        stream = await client.responses.create(
            input="go on", previous_response_id=first.id, stream=True, **asked
        )
        events = [event async for event in stream]
    last = events[-1].response
    assert last.previous_response_id == first.id
    is_cut = last.usage.output_tokens == 20 and last.incomplete_details is not None
    assert last.status == ("incomplete" if is_cut else "completed")
    assert last.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    assert last.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens
    assert events[0].type == "response.created"


async def test_a_client_that_hangs_up_frees_the_engine(qwen3):
    async with serving(qwen3) as (endpoint, client):
        stream = await client.chat.completions.create(
            model="m", messages=[QUESTION], stream=True, logprobs=True
        )
        async for _ in stream:
            break
        await stream.close()
        for _ in range(100):
            before = endpoint.engine.progress.num_sampled_tokens
            await asyncio.sleep(0.05)
            if endpoint.engine.progress.num_sampled_tokens == before:
                break
    assert endpoint.engine.progress.num_sampled_tokens < 500


async def test_a_teacher_says_how_probable_an_answer_is(qwen3):
    async with loaded(qwen3) as endpoint:
        sampling = {"max_new_tokens": 12}
        said = await endpoint.complete(ModelRequest({"messages": [QUESTION]}, sampling, seed=1))
        message = {"role": "assistant", "content": "sunny"}
        asked = {
            "messages": [QUESTION, message],
            "prompt_logprobs": 0,
            "add_generation_prompt": False,
        }
        judged = await endpoint.complete(ModelRequest(asked, {"max_new_tokens": 1}))
        prompt = judged["prompt_token_ids"]
        scores = await endpoint.engine.score(prompt)
    assert prompt[: len(said["prompt_token_ids"])] == said["prompt_token_ids"]
    pairs = list(zip(judged["prompt_logprobs"], prompt, strict=True))[1:]
    assert [entry[str(token)]["logprob"] for entry, token in pairs] == pytest.approx(
        scores, abs=1e-5
    )


async def test_an_adapter_answers_as_its_base_with_it(qwen3, tmp_path):
    settings = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated")
        model = get_peft_model(Qwen3ForCausalLM.from_pretrained(qwen3), settings)
    adapter = tmp_path / "adapter"
    model.save_pretrained(adapter)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(qwen3 / name, adapter / name)
    ids = [5, 9, 300, 41, 7]
    async with loaded(qwen3) as base, loaded(adapter) as adapted:
        plain = await base.engine.score(ids)
        found = await adapted.engine.score(ids)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    wanted = logits.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
    assert found == pytest.approx(wanted, abs=1e-4) and found != pytest.approx(plain, abs=1e-4)


async def test_the_context_can_be_chosen_and_ends_answers(qwen3):
    async with loaded(qwen3, max_context_tokens=100) as endpoint:
        answer = await endpoint.complete(ModelRequest({"messages": [QUESTION]}, seed=2))
        assert answer["usage"]["total_tokens"] <= 100
        with pytest.raises(EndpointResponseError, match="context has 100 tokens"):
            long = {"role": "user", "content": "weather " * 100}
            await endpoint.complete(ModelRequest({"messages": [long]}))
    with pytest.raises(ConfigurationError, match="fewer than 5,000"):
        load_policy(resolve_model(str(qwen3)), LoadingSettings(max_context_tokens=5000))


def test_damaged_weights_are_said(qwen3, tmp_path):
    folder = shutil.copytree(qwen3, tmp_path / "damaged")
    (folder / "model.safetensors").write_bytes(b"not weights at all")
    with pytest.raises(ConfigurationError, match="cannot be loaded") as caught:
        load_policy(resolve_model(str(folder)))
    assert caught.value.where == str(folder)


def test_serve_says_what_it_serves_and_ends_on_ctrl_c(workspace):
    import signal
    import urllib.request

    process = workspace.start(
        "endpoint", "serve", "local", "--model", "tiny", "--seed", "3", "--threads", "1", "--json"
    )
    try:
        document = json.loads(process.stdout.readline())
        assert (document["model"], document["device"], document["num_threads"]) == (
            "tiny",
            "cpu",
            1,
        )
        body = json.dumps({"messages": [QUESTION], "max_tokens": 5}).encode()
        url = f"{document['url']}/chat/completions"
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60) as response:
            assert json.load(response)["usage"]["completion_tokens"] <= 5
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.communicate(timeout=300)
