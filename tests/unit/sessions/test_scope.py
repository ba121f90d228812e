"""Endpoints are told whose conversation a call belongs to and which answer it continues."""

import json

from arkdev import rollout
from arkdev.sessions.identity import AttemptIdentity
from tests.running import LINE, QUESTION, answer, running


async def test_calls_of_one_attempt_have_one_scope_and_other_attempts_another():
    async with running() as run:
        for number in range(2):
            session = run.session(AttemptIdentity(0, 0, number))
            await session.complete(dict(QUESTION))
            await session.complete(dict(QUESTION))
        scopes = [request.scope for request in run.endpoint.requests]
        assert scopes[0] == scopes[1] != scopes[2] == scopes[3]
        assert all(scopes)
        assert session.jwt_token not in str(scopes)


async def test_a_branch_names_the_endpoints_own_id_of_the_answer_before_it():
    answers = [answer(str(number), id=f"chatcmpl-{number}") for number in range(3)]
    async with running(answers) as run:
        session = run.session()
        first = await session.respond({"input": "q"})
        await session.respond({"input": "q", "previous_response_id": first["id"]})
        inserted = session.insert(
            [{"role": "user", "content": "more"}], previous_response_id=first["id"]
        )
        await session.respond({"input": "q", "previous_response_id": inserted})
        previous = [request.previous_response_id for request in run.endpoint.requests]
        assert previous == [None, "chatcmpl-0", "chatcmpl-0"]


async def test_neither_is_in_what_is_sent_or_recorded():
    @rollout
    async def asks(context, proxy, sample):
        client = proxy.async_rollout_client()
        await client.chat.completions.create(model="m", messages=LINE["messages"])

    async with running() as run:
        finished = await run.rollout(asks)
        (request,) = run.endpoint.requests
        assert request.previous_response_id is None, "a chat call says what it continues itself"
        assert "scope" not in request.body
        assert request.scope not in json.dumps(finished.record, default=str)
