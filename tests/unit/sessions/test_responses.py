"""The Responses API inside an attempt: branches, evidence, seeds, raw clients, other servers.

Field cases 1.1, 1.3, 2.7 and 2.8.
"""

import asyncio
import random

import pytest

from arkdev import (
    GroupRolloutResult,
    InferenceProxy,
    SingleResponse,
    group_grader,
    group_rollout,
    rollout,
    wrap_responses_async_client_inplace,
    wrap_responses_client_inplace,
)
from arkdev.endpoints.scripted.model import ScriptedModel
from arkdev.endpoints.scripted.server import ScriptedServer
from arkdev.errors import EndpointResponseError, LateCallError, PluginError
from arkdev.runs.records import Verdict
from arkdev.sessions.identity import AttemptIdentity
from tests.running import LINE, a_request_of, answer, running, tool_call, with_tokens

openai = pytest.importorskip("openai")
HE, LLO = 11, 12


def user(text):
    return {"role": "user", "content": text}


def ask(client, text, previous=None, **options):
    if previous is not None:
        options["previous_response_id"] = previous.id
    return client.responses.create(model="m", input=[user(text)], **options)


def of(*responses):
    return GroupRolloutResult(responses=[SingleResponse(id=response.id) for response in responses])


def contents(messages):
    return [message["content"] for message in messages]


@pytest.mark.parametrize("previous", ["nope", "resp_of_another_attempt"])
async def test_an_unknown_previous_response_fails_here_without_a_call(previous):
    async with running() as run:
        other = await ask(run.proxy().async_rollout_client(), "q")
        known = other.id if previous != "nope" else "nope"
        del run.requests[:]
        client = run.proxy().async_rollout_client()
        with pytest.raises(PluginError, match="no response"):
            await client.responses.create(model="m", input="q", previous_response_id=known)
        with pytest.raises(PluginError, match="no response"):
            await run.session().respond({"input": "q", "previous_response_id": known})
    assert run.requests == []


async def test_returning_an_unknown_response_is_an_error_of_the_plugin():
    @group_rollout
    async def inventing(context, proxy, sample, n_sample):
        return GroupRolloutResult(responses=[SingleResponse(id="resp_invented")])

    async with running() as run:
        (finished,) = await run.group(inventing, n=1)
    assert finished.record.verdict is Verdict.FAILURE
    assert "no response 'resp_invented'" in finished.record.attempts[-1].error


async def test_the_endpoint_gets_the_whole_history_of_the_branch_and_no_id():
    call = answer("thinking", tool_calls=[tool_call("f", "{}", id="c1")])
    async with running(["a1", call, "a3", "a4"]) as run:
        client = run.proxy().async_rollout_client()
        r1 = await ask(client, "q1")
        r2 = await ask(client, "q2", r1)
        output = {"type": "function_call_output", "call_id": "c1", "output": "42"}
        await client.responses.create(model="m", input=[output], previous_response_id=r2.id)
        await ask(client, "q4", r1)
    assert [contents(sent) for sent in run.sent] == [
        ["q1"],
        ["q1", "a1", "q2"],
        ["q1", "a1", "q2", "thinking", "42"],
        ["q1", "a1", "q4"],
    ]
    assert run.sent[2][3]["tool_calls"] == [tool_call("f", "{}", id="c1")]
    assert all("previous_response_id" not in request.body for request in run.requests)


async def test_reasoning_goes_back_with_its_turn():
    def strict(request):
        for message in request.body["messages"]:
            if message["role"] == "assistant" and not message.get("reasoning_content"):
                return EndpointResponseError("reasoning_content is missing", status=400)
        body = answer("22")
        body["choices"][0]["message"]["reasoning_content"] = "let me see"
        return body

    @group_rollout
    async def thinking(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        first = await ask(client, "q")
        assert first.output[0].summary[0].text == "let me see"
        return of(await ask(client, "again", first))

    @group_grader
    async def reads_it(context, sample, trajectories):
        return [float(t.messages[1].reasoning_content == "let me see") for t in trajectories]

    async with running(strict) as run:
        (group,) = await run.samples(thinking, reads_it)
    assert group.rewards == (1.0,)


async def test_instructions_are_not_carried_over():
    async with running() as run:
        client = run.proxy().async_rollout_client()
        first = await ask(client, "q1", instructions="be brief")
        await ask(client, "q2", first)
        await ask(client, "q3", first, instructions="be long")
    assert [contents(sent) for sent in run.sent] == [
        ["be brief", "q1"],
        ["q1", "fine", "q2"],
        ["be long", "q1", "fine", "q3"],
    ]


def hello_evidence(request):
    """[he, llo], whose text "hello" is one token of the vocabulary; then a second sampled turn."""
    if len(request.body["messages"]) == 1:
        body = with_tokens([1, 2], [HE, LLO], [-1.0, -2.0], content="hello")
        body["choices"][0]["message"]["tool_calls"] = [tool_call(id="c1")]
        return body
    return with_tokens([1, 2, HE, LLO, 7, 8], [9], [-0.5], content="done")


async def test_sampled_ids_stay_as_they_were_sampled_along_a_path():
    @group_rollout
    async def two_turns(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        first = await ask(client, "q")
        output = {"type": "function_call_output", "call_id": "c1", "output": "22"}
        return of(
            *[
                await client.responses.create(
                    model="m", input=[output], previous_response_id=first.id
                )
                for _ in range(n_sample)
            ]
        )

    async with running(hello_evidence) as run:
        finished = await run.group(two_turns, n=2)
    for one in finished:
        trajectory = one.trajectory
        assert trajectory.total_token_ids == [1, 2, HE, LLO, 7, 8, 9]
        assert trajectory.total_loss_weight == [0, 0, 1, 1, 0, 0, 1]
        assert trajectory.total_token_logprobs == [0, 0, -1.0, -2.0, 0, 0, -0.5]


async def test_a_branch_with_incomplete_evidence_says_so_and_the_others_keep_theirs():
    incomplete = with_tokens([1], [2] * 9, [-0.1] * 9)
    incomplete["usage"]["completion_tokens"] = 20

    @group_rollout
    async def one_of_two(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        return of(await ask(client, "good"), await ask(client, "bad"))

    async with running([with_tokens([1], [2], [-0.1]), incomplete]) as run:
        (group,) = await run.samples(one_of_two, n=2)
    good, bad = run.finished
    assert (good.record.warnings, good.evidence.token_ids) == ((), (1, 2))
    (warning,) = bad.record.warnings
    assert warning == (
        "evidence_incomplete: call 1: the endpoint reported 20 completion tokens and gave 9 token "
        "ids with 9 logprobs"
    )
    assert bad.evidence is None
    assert group.rewards == (1.0, 1.0)


async def test_what_is_odd_about_a_branch_is_noted_on_that_branch_alone():
    odd = answer("odd", finish_reason="tool_calls", usage=None)

    @group_rollout
    async def branches(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        root = await ask(client, "root")
        plain, strange = await ask(client, "plain", root), await ask(client, "odd", root)
        return of(plain, await ask(client, "more", strange))

    async with running(["a", "b", odd, "d"]) as run:
        plain, strange = await run.group(branches, n=2)
    assert plain.record.warnings == ()
    assert strange.record.warnings == ("finish_tool_calls_without_calls", "usage_unknown")
    assert strange.record.usage["total_tokens"] is None


async def test_turns_of_a_branch_carry_the_ids_of_their_responses():
    @group_rollout
    async def shared(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        root = await ask(client, "root")
        return of(root, await ask(client, "more", root))

    async with running() as run:
        root, leaf = await run.group(shared, n=2)
    assert [len(one.record.turns) for one in (root, leaf)] == [1, 2]
    assert leaf.record.turns[0] == root.record.turns[0]
    assert len({turn.response_id for turn in leaf.record.turns}) == 2


async def seeds_of_branches(shuffled, *, attempt=0):
    """Branches that begin at odd moments; the seed of each question."""
    seeds = {}

    def remember(request):
        question = request.body["messages"][-1]["content"]
        seeds.setdefault(question, []).append(request.seed)
        return f"re: {question}"

    async def branch(client, root, number):
        await asyncio.sleep(shuffled.random() / 200)
        first = await ask(client, f"{number}", root)
        await asyncio.sleep(shuffled.random() / 200)
        await ask(client, f"{number} more", first)

    async with running(remember) as run:
        proxy = run.proxy(run.session(AttemptIdentity(0, 0, attempt)))
        client = proxy.async_rollout_client()
        root = await ask(client, "root")
        await asyncio.gather(*(branch(client, root, number) for number in range(6)))
    return seeds


async def test_branches_get_the_same_seeds_whatever_their_timing():
    first = await seeds_of_branches(random.Random(1))
    second = await seeds_of_branches(random.Random(2))
    assert first == second
    assert len({seed for seeds in first.values() for seed in seeds}) == 13
    assert first != await seeds_of_branches(random.Random(1), attempt=1)


async def test_the_same_question_asked_again_gets_another_seed():
    async with running() as run:
        client = run.proxy().async_rollout_client()
        root = await ask(client, "root")
        await asyncio.gather(*(ask(client, "same", root) for _ in range(4)))
    assert len({request.seed for request in run.requests}) == 5


async def test_concurrent_branches_give_the_scripted_model_s_answers_again():
    model = ScriptedModel(skill=0.5)

    def scripted(request):
        reply = model.reply(request.body, seed=request.seed)
        return reply.body

    @group_rollout
    async def branching(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        root = await ask(client, "2 + 3 = ?")

        async def branch(number):
            await asyncio.sleep(random.random() / 200)
            return await ask(client, f"{number} + 4 = ?", root)

        return of(*await asyncio.gather(*(branch(number) for number in range(n_sample))))

    texts = []
    for _ in range(3):
        async with running(scripted) as run:
            finished = await run.group(branching, n=5, run_seed=3)
        texts.append([contents(one.record.messages) for one in finished])
    assert texts[0] == texts[1] == texts[2]


async def test_of_overlapping_responses_the_one_asked_last_is_a_single_rollout_s_trajectory():
    release = asyncio.Event()

    class SlowFirst:
        name = model = "fake"
        capabilities = None

        async def complete(self, request):
            text = request.body["messages"][0]["content"]
            if text == "first":
                await release.wait()
            return answer(f"re: {text}")

    async with running() as run:
        run.services.endpoint = SlowFirst()
        session = run.session()
        first = asyncio.create_task(session.respond({"input": "first"}))
        await asyncio.sleep(0)
        await session.respond({"input": "last"})
        release.set()
        await first
    assert contents(session.conversation.plain_messages) == ["last", "re: last"]


async def test_the_session_tells_of_a_response_when_it_is_in_the_tree():
    shown = []
    async with running() as run:
        run.services.on_turn = lambda session: shown.append(
            contents(session.conversation.plain_messages)
        )
        await run.session().respond({"input": "q"})
    assert shown == [["q", "fine"]]


async def test_a_response_after_the_end_is_refused_and_not_in_the_tree():
    async with running(delay_s=60) as run:
        session = run.session()
        client = run.proxy(session).async_rollout_client()
        call = asyncio.create_task(ask(client, "q"))
        await a_request_of(run)
        session.close()
        with pytest.raises(LateCallError):
            await call
        with pytest.raises(LateCallError):
            await ask(client, "q")
        with pytest.raises(LateCallError):
            session.insert([user("q")], previous_response_id=None)
    assert (session.turns, len(session.responses)) == ((), 0)


@pytest.mark.parametrize("is_group", [True, False])
async def test_a_raw_client_speaks_responses_through_the_gateway(is_group):
    @group_rollout
    async def raw_group(context, proxy, sample, n_sample):
        async with openai.AsyncOpenAI(base_url=proxy.url, api_key=proxy.jwt_token) as client:
            root = await ask(client, "root")
            return of(root, await ask(client, "more", root))

    @rollout
    async def raw_single(context, proxy, sample):
        async with openai.AsyncOpenAI(base_url=proxy.url, api_key=proxy.jwt_token) as client:
            await ask(client, "more", await ask(client, "root"))

    async with running(["a1", "a2"]) as run:
        if is_group:
            last = (await run.group(raw_group, n=2))[-1].record
        else:
            last = (await run.rollout(raw_single)).record
    assert contents(last.messages) == ["root", "a1", "more", "a2"]
    assert [turn.via for turn in last.turns] == ["raw", "raw"]
    assert [w for w in last.warnings if not w.startswith("client_built")] == []


async def test_a_raw_client_with_an_unknown_id_gets_a_bad_request():
    async with running() as run:
        proxy = run.proxy()
        async with openai.AsyncOpenAI(base_url=proxy.url, api_key=proxy.jwt_token) as client:
            with pytest.raises(openai.BadRequestError, match="no response 'nope'"):
                await client.responses.create(model="m", input="q", previous_response_id="nope")
    assert run.requests == []


class WithoutStore(ScriptedServer):
    """The scripted server, as one that keeps nothing; it remembers what it was asked."""

    def __init__(self):
        super().__init__(script=None, skill=1.0)
        self.bodies = []
        reply = self._served.responses

        async def keeping_nothing(body, *, seed):
            self.bodies.append(body)
            return await reply({**body, "store": False}, seed=seed)

        self._served.responses = keeping_nothing


@pytest.fixture
async def server():
    server = WithoutStore()
    server.url = await server.start()
    yield server
    await server.stop()


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("openai", "OpenAI"),
        ("openai", "AsyncOpenAI"),
        ("volcenginesdkarkruntime", "Ark"),
        ("volcenginesdkarkruntime", "AsyncArk"),
        ("handed out", "sync"),
        ("handed out", "async"),
    ],
)
async def test_a_stand_alone_proxy_sends_the_whole_history_to_a_server_without_a_store(
    server, library, name
):
    proxy = InferenceProxy({**LINE, "temperature": 0.5}, url=server.url, jwt_token="k")
    is_async = name.lower().startswith("async")
    if library == "handed out":
        client = proxy.async_rollout_client() if is_async else proxy.rollout_client()
    else:
        module = pytest.importorskip(library)
        client = getattr(module, name)(base_url=proxy.url, api_key=proxy.jwt_token)
        wrap = wrap_responses_async_client_inplace if is_async else wrap_responses_client_inplace
        wrap(client, proxy)

    async def say(text, previous=None, **options):
        if is_async:
            return await ask(client, text, previous, **options)
        return await asyncio.to_thread(ask, client, text, previous, **options)

    r1 = await say("1 + 1 = ?", instructions="be brief")
    r2 = await say("2 + 2 = ?", r1)
    r4 = await say("3 + 3 = ?", r1)
    with pytest.raises(PluginError, match="no response 'nope'"):
        await say("q", type(r1).model_construct(id="nope"))
    sent = [[item.get("content") for item in body["input"]] for body in server.bodies]
    first = r1.output[-1].content[0].text
    assert sent == [
        ["be brief", "1 + 1 = ?"],
        ["1 + 1 = ?", first, "2 + 2 = ?"],
        ["1 + 1 = ?", first, "3 + 3 = ?"],
    ]
    assert {body["temperature"] for body in server.bodies} == {0.5}
    assert not any(body.get("previous_response_id") for body in server.bodies)
    assert len({r1.id, r2.id, r4.id}) == 3
    inserted = proxy.update_state_from_messages([user("4 + 4 = ?")], previous_response_id=r2.id)
    assert len(proxy.responses.conversation(inserted).messages) == 5
    closing = client.close()
    if is_async:
        await closing


async def test_an_answer_from_elsewhere_after_a_response_is_the_last_call():
    elsewhere = answer("from elsewhere")
    async with running() as run:
        session = run.session()
        proxy = run.proxy(session)
        await ask(proxy.async_rollout_client(), "first")
        proxy.update_state_from_messages([user("second")])
        proxy.process_completion({**elsewhere, "id": "not-ours"})
        assert proxy.messages[-1].content == "from elsewhere"
