"""`arkdev doctor tokens` on built-in dialogues and on recorded rollouts."""

import json

import pytest

from arkdev.backends.local.rendering import open_rendering
from tests.integration.test_json_schemas import check, published
from tests.integration.workspace import Command, Workspace, away_from_the_user
from tests.local.template_folders import KEEPS_REASONING, LLAMA, QWEN3, write_folder

TYPES = {KEEPS_REASONING: "qwen2", QWEN3: "qwen3", LLAMA: "llama"}
TWO_TURNS = """
    from arkdev import rollout

    @rollout
    def answer(context, proxy, sample):
        client = proxy.rollout_client()
        messages = sample.model_dump()["messages"]
        for _ in range(2):
            completion = client.chat.completions.create(model="m", messages=messages)
            said = completion.choices[0].message.content
            messages = [*messages, {"role": "assistant", "content": said}]
            messages = [*messages, {"role": "user", "content": "And now?"}]
"""
BRANCHES = """
    from arkdev import GroupRolloutResult, SingleResponse, group_rollout

    @group_rollout
    async def answer(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        first = await client.responses.create(model="m", input=sample.model_dump()["messages"])
        ids = []
        for number in range(n_sample):
            asked = [{"role": "user", "content": f"{number}?"}]
            more = await client.responses.create(
                model="m", input=asked, previous_response_id=first.id
            )
            ids.append(SingleResponse(id=more.id))
        return GroupRolloutResult(responses=ids)
"""


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    with away_from_the_user(tmp_path / "config", monkeypatch):
        yield


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path / "ws")


@pytest.fixture
def arkdev(workspace, monkeypatch, capsysbinary):
    monkeypatch.chdir(workspace.root)
    return Command(capsysbinary)


@pytest.fixture
def model(tmp_path):
    def made(template):
        folder = write_folder(tmp_path / "model", template, model_type=TYPES[template])
        (folder / "model.safetensors").write_bytes(b"")  # weights are not looked at
        return str(folder)

    return made


def of(document, name):
    (row,) = [row for row in document["dialogues"] if row["name"] == name]
    return row


def test_a_template_that_writes_every_turn_the_same_has_no_drift(arkdev, model):
    told = arkdev("doctor", "tokens", "--model", model(LLAMA))
    assert told.exit_code == 0, told.err
    assert told.out.splitlines()[-1] == "no drift"
    assert "one tool call at a time" in told.out, "what it cannot write is said"


def test_reasoning_that_is_dropped_is_found_with_token_place_and_effect(arkdev, model):
    told = arkdev("doctor", "tokens", "--model", model(QWEN3), "--json")
    assert told.exit_code == 1, told.err
    document = told.document
    assert document["rendering"] == "renderer qwen3"
    (drift,) = of(document, "reasoning before a new question")["drifts"]
    assert (drift["kind"], drift["turn"], drift["kept"], drift["fresh"]) == (
        *("cut", 2, "<think>"),
        "It",
    )
    assert drift["before"].endswith("<|im_start|>assistant\n")
    assert drift["num_tokens"] > 0
    assert of(document, "reasoning in a tool round")["drifts"] == []
    assert of(document, "branches 2")["drifts"] == []
    told = arkdev("doctor", "tokens", "--model", model(QWEN3))
    assert told.out.splitlines()[-1] == "1 dialogue with drift"
    assert "'<think>' becomes 'It'" in told.out


def test_an_empty_block_that_only_the_prompt_has_shifts_a_rendering_from_scratch(arkdev, model):
    document = arkdev("doctor", "tokens", "--model", model(KEEPS_REASONING), "--json").document
    assert of(document, "turns")["drifts"] == []
    (drift,) = of(document, "turns, thinking off")["drifts"]
    assert (drift["kind"], drift["kept"]) == ("shifted", "<think>")


def test_tool_calls_that_are_not_read_are_found(arkdev, model, monkeypatch):
    template = KEEPS_REASONING.replace("<tool_call>", "<call>").replace("</tool_call>", "</call>")
    monkeypatch.setitem(TYPES, template, "qwen2")
    told = arkdev("doctor", "tokens", "--model", model(template), "--json")
    assert told.exit_code == 1
    assert of(told.document, "tool calls")["unread"][0]["field"] == "tool_calls"


def test_the_document_is_the_published_one(arkdev, model):
    document = arkdev("doctor", "tokens", "--model", model(QWEN3), "--json").document
    check(document, published(arkdev, "doctor-tokens"))


def test_recorded_rollouts_are_checked_with_the_ids_that_were_sampled(workspace, arkdev, model):
    workspace.write("plugins/rollout.py", TWO_TURNS)
    workspace.samples("hello")
    folder = workspace.run().reader.folder
    name = model(KEEPS_REASONING)
    plain = arkdev("doctor", "tokens", "--model", name, "--run", "latest", "--json")
    (row,) = plain.document["dialogues"]
    assert (row["num_turns"], row["is_as_sampled"], row["drifts"]) == (2, False, [])
    rendering = open_rendering(workspace.root.parent / "model")
    (line,) = (folder / "trajectories.jsonl").read_text("utf-8").splitlines()
    answers = [m["content"] for m in json.loads(line)["messages"] if m["role"] == "assistant"]
    ids, weights = [], []
    for text in answers:  # each letter by itself: no tokenizer would write it so
        letters = [rendering._tokenizer.encode(letter)[0] for letter in text]
        ids += [5, *letters, rendering._tokenizer.eos_token_id]
        weights += [0.0, *[1.0] * (len(letters) + 1)]
    record = {"trajectory_id": "0.0", "token_ids": ids, "loss_weight": weights}
    (folder / "tokens.jsonl").write_text(
        json.dumps({**record, "logprobs": [0.0] * len(ids)}) + "\n", encoding="utf-8"
    )
    told = arkdev("doctor", "tokens", "--model", name, "--run", "latest", "--json")
    (row,) = told.document["dialogues"]
    assert (told.exit_code, row["is_as_sampled"]) == (1, True)
    (drift,) = row["drifts"]
    assert (drift["kind"], drift["turn"], drift["kept"]) == ("shifted", 2, answers[0][0])
    assert drift["num_tokens"] == sum(map(int, weights))


def test_the_branches_of_a_group_rollout_are_checked(workspace, arkdev, model):
    workspace.write("plugins/rollout.py", BRANCHES)
    workspace.samples("hello")
    workspace.run(num_generations=2)
    told = arkdev("doctor", "tokens", "--model", model(QWEN3), "--run", "latest", "--json")
    assert [row["num_turns"] for row in told.document["dialogues"]] == [2, 2]
    assert told.document["run"] is not None
    assert told.exit_code == 0, told.out


def test_a_model_that_cannot_be_used_and_a_run_without_answers_end_with_two(
    workspace, arkdev, model
):
    assert arkdev("doctor", "tokens", "--model", "nobody").exit_code == 2
    name = model(LLAMA)
    assert arkdev("doctor", "tokens", "--model", name, "--run", "nothing").exit_code == 2
    told = arkdev("doctor", "--json", "tokens", "--model", name)
    assert (told.exit_code, "before the command" in told.err) == (2, True)
