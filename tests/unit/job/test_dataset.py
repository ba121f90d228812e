"""Dataset files: the same samples in every text form, each mistake with the editor's line."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from arkdev.errors import DataError, ExitCode
from arkdev.job.dataset import load_dataset, parse_sample, read_files, read_samples

USER = {"role": "user", "content": "1+1=？"}


def line(**more: Any) -> str:
    return json.dumps({"messages": [USER], **more}, ensure_ascii=False)


def write(folder: Path, content: str | bytes, *, name: str = "data.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def problem_of(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        load_dataset([path])
    assert caught.value.exit_code == ExitCode.USAGE
    assert len(caught.value.problems) == 1
    return str(caught.value).replace(f"{path.parent}/", "")


ROWS = [line(extra={"answer": i}) for i in range(3)]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("\n".join(ROWS) + "\n", [1, 2, 3]),
        ("\n".join(ROWS), [1, 2, 3]),
        ("\r\n".join(ROWS) + "\r\n", [1, 2, 3]),
        ("\ufeff" + "\n".join(ROWS), [1, 2, 3]),
        ("\ufeff\r\n" + "\r\n  \r\n".join(ROWS) + "\r\n\r\n", [2, 4, 6]),
    ],
)
def test_every_text_form_gives_the_same_samples(
    tmp_path: Path, content: str, lines: list[int]
) -> None:
    read = list(read_samples(write(tmp_path, content)))
    assert [item.line_number for item in read] == lines
    assert [item.raw for item in read] == [json.loads(row) for row in ROWS]
    assert [item.index for item in read] == [0, 1, 2]
    assert [item.sample.extra for item in read] == [{"answer": i} for i in range(3)]


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        (b"", "data.jsonl: ", "has no samples"),
        (b"\xef\xbb\xbf\r\n \n", "data.jsonl: ", "has no samples"),
        (ROWS[0].encode("utf-16"), "data.jsonl:1: ", "UTF-16"),
        (ROWS[0].encode("utf-16-le"), "data.jsonl:1: ", "save it as UTF-8"),
        (b"\n" + ROWS[0].encode("gbk"), "data.jsonl:2: ", "byte 48 of the file, from 0"),
        (b'\n{"messages": [,]}', "data.jsonl:2:15: ", "not valid JSON: Expecting value"),
        (b"\xef\xbb\xbf{]", "data.jsonl:1:2: ", "not valid JSON"),
        (b'\n [\n{"messages": []}]', "data.jsonl:1: ", "is a JSON array"),
        (b"3\n", "data.jsonl:1: ", "a JSON object is expected"),
        (b'{"a": NaN}', "data.jsonl:1: ", "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "data.jsonl:1: ", "-Infinity is not a JSON number"),
        (b'{"a": 1e999}', "data.jsonl:1: ", "1e999 is too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "data.jsonl:1: ", "digits"),
        (b'{"a":' + b"[" * 100_000, "data.jsonl:1: ", "nested too deeply"),
        (b'\n{"extra": 1, "extra": 2}', "data.jsonl:2: ", "key 'extra' is there more than once"),
        (b'{"extra": {"a": [{"k": 1, "k": 2}]}}', "data.jsonl:1: ", "key 'k' is there more than"),
    ],
)
def test_a_file_that_is_no_json_lines_gets_its_own_message(
    tmp_path: Path, content: bytes, place: str, message: str
) -> None:
    text = problem_of(write(tmp_path, content))
    assert text.startswith(place)
    assert message in text


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": None}, "messages is null; a list"),
        ({"messages": []}, "messages is empty"),
        ({"messages": "hi"}, "messages is text"),
        ({"messages": USER}, "wrap it in a list"),
        ({"messages": ["hi"]}, "messages[0] is text; an object"),
        ({"messages": [{"content": "x"}]}, "messages[0].role is missing"),
        ({"messages": [{"role": 1, "content": "x"}]}, "messages[0].role is a number"),
        ({"messages": [{"role": "usr", "content": "x"}]}, "did you mean 'user'?"),
        ({"messages": [{"role": "user"}]}, "messages[0].content is missing or null"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content is a number"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0] is no part"),
        ({"messages": [USER, {"role": "assistant", "content": "x"}]}, "role 'assistant'; it must"),
        ({"messages": [{"role": "system", "content": "x"}]}, "'user' or 'tool'"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "[0] has no text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "u"}]}]},
            "messages[0].content[0] has no image_url.url",
        ),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0] has no name"),
        ({"temperature": "0.7"}, "temperature is text; a number"),
        ({"temperature": True}, "temperature is a boolean"),
        ({"top_k": 1.5}, "top_k is 1.5; a whole number"),
        ({"n": 4}, "n is 4, which has no effect in a line"),
        ({"n": 0}, "n is 0; at least 1"),
        ({"max_new_tokens": [1]}, "max_new_tokens is a list"),
        ({"extra": "answer"}, "extra is text; an object"),
        ({"tools": {"type": "function"}}, "tools: a list of objects"),
        ({"thinking": "enabled"}, 'thinking: an object such as {"type": "enabled"}'),
        ({"thinking": {"type": "enable"}}, "did you mean 'enabled'?"),
    ],
)
def test_a_line_that_is_no_sample_names_the_field(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    text = problem_of(write(tmp_path, line() + "\n\n" + line(**fields)))
    assert text.startswith("data.jsonl:3: ")
    assert message in text


def test_a_bad_tool_call_names_the_field(tmp_path: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    text = problem_of(write(tmp_path, line(messages=[*messages, {"role": "tool", "content": "x"}])))
    assert "messages[1].tool_calls[0].function.arguments" in text


def test_a_misspelt_messages_key_is_suggested(tmp_path: Path) -> None:
    text = problem_of(write(tmp_path, '{"message": []}'))
    assert "messages is missing; is 'message' meant to be it?" in text


def test_all_problems_up_to_twenty_are_told_together(tmp_path: Path) -> None:
    path = write(tmp_path, "\n".join([line(), "x", line(n="1"), "y"]))
    with pytest.raises(DataError) as caught:
        load_dataset([path])
    assert [text.partition("data.jsonl:")[2][0] for text in caught.value.problems] == [
        "2",
        "3",
        "4",
    ]
    assert all(text in str(caught.value) for text in caught.value.problems)

    many = write(tmp_path, "x\n" * 50, name="many.jsonl")
    with pytest.raises(DataError) as caught:
        load_dataset([path, many])
    assert len(caught.value.problems) == 20
    assert "many.jsonl:17:1" in caught.value.problems[-1]
    assert "there may be more" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "message"),
    [("nope.jsonl", "no such data file"), (".", "is a folder"), ("a*.jsonl", "must not hold any")],
)
def test_a_path_that_is_no_file_is_told(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_dataset([tmp_path / name])


def test_no_files_at_all_is_an_error() -> None:
    with pytest.raises(DataError, match="no data files"):
        load_dataset([])


def test_files_follow_each_other_and_the_limit_stops_reading(tmp_path: Path) -> None:
    first = write(tmp_path, "\n".join(ROWS), name="1.jsonl")
    second = write(tmp_path, "\n".join([ROWS[0], "broken"]), name="2.jsonl")
    read = list(read_files([first, second], 4))
    assert [(item.index, item.where.rpartition("/")[2]) for item in read] == [
        (0, "1.jsonl:1"),
        (1, "1.jsonl:2"),
        (2, "1.jsonl:3"),
        (3, "2.jsonl:1"),
    ]
    with pytest.raises(DataError, match="not valid JSON"):
        load_dataset([first, second], limit=5)


def test_a_pair_is_one_character_and_half_of_one_is_replaced_and_flagged(tmp_path: Path) -> None:
    pair = r'{"messages": [{"role": "user", "content": "\ud83c\udf78"}]}'
    half = (
        r'{"messages": [{"role": "user", "content": "a\ud83d"}], "extra": {"\udc00": ["\uD800"]}}'
    )
    first, second = read_samples(write(tmp_path, f"{pair}\n{half}\n"))
    assert first.sample.messages[0].content == "\U0001f378"
    assert first.warnings == ()
    assert second.sample.messages[0].content == "a\ufffd"
    assert second.raw["extra"] == {"\ufffd": ["\ufffd"]}
    assert ["surrogate" in warning for warning in second.warnings] == [True]
    json.dumps(second.raw, ensure_ascii=False).encode("utf-8")


def test_one_content_part_is_made_a_list_in_the_sample_alone(tmp_path: Path) -> None:
    part = {"type": "text", "text": "1+1"}
    [item] = read_samples(write(tmp_path, line(messages=[{"role": "user", "content": part}])))
    assert item.sample.messages[0].content == [part]
    assert item.raw["messages"][0]["content"] == part


def test_defaults_are_told_from_given_values(tmp_path: Path) -> None:
    text = line(temperature=1, top_k=None, n=1.0, model="m", thinking={"type": "auto"}, tools=None)
    [item] = read_samples(write(tmp_path, text))
    assert item.sample.n == 1 and item.sample.top_k == 0
    assert {"temperature", "n"} <= item.sample.model_fields_set
    assert not {"top_k", "top_p"} & item.sample.model_fields_set
    assert item.sample["model"] == "m"
    assert item.warnings == ()


def test_odd_but_usable_lines_are_warned_of_once_each(tmp_path: Path) -> None:
    developer = [{"role": "developer", "content": "x"}, USER]
    rows = [line(), line(extras={}), line(extras={}, label=1), line(messages=developer)]
    data = load_dataset([write(tmp_path, "\n".join(rows))])
    told = [(w.where.rpartition(":")[2], w.message, w.count) for w in data.warnings]
    assert told == [
        ("2", "unknown key 'extras'; did you mean 'extra'?", 2),
        ("3", "unknown key 'label'; data of your own goes in 'extra'", 1),
        ("4", "messages[0] has the role 'developer', which many models refuse; use 'system'", 1),
    ]
    assert data.samples[2].sample["label"] == 1
    assert str(data.warnings[0]).endswith("(2 lines)")


def test_memory_stays_flat_while_a_file_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, (line(extra={"text": "x" * 1000}) + "\n") * 3000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_samples(path)) == 3000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 500_000 < path.stat().st_size


def test_a_sample_of_the_command_line_is_read_alike() -> None:
    item = parse_sample(line(extra={"answer": 2}))
    assert item.path is None and item.where == "--sample"
    assert item.sample.messages[0].content == "1+1=？"
    escaped = line().encode("utf-8").decode("ascii", "surrogateescape")
    assert parse_sample(escaped).raw == json.loads(line())
    for text, message in (("{\n 1", "--sample:2:2: not valid"), ("[]", "--sample: a JSON object")):
        with pytest.raises(DataError, match=message):
            parse_sample(text)


def test_media_are_told_of_where_a_model_could_not_read_them(tmp_path: Path) -> None:
    good = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"},
    }
    local = {"type": "video_url", "video_url": {"url": "file:///tmp/a.mp4"}}
    parts = [{"type": "text", "text": "what?"}, good]
    messages = [
        {"role": "user", "content": parts},
        {"role": "tool", "content": [good], "tool_call_id": "c1"},
        {"role": "user", "content": [local, {"type": "hologram"}]},
    ]
    fine, odd = read_samples(
        write(tmp_path, line(messages=messages[:1]) + "\n" + line(messages=messages))
    )
    assert fine.sample.messages[0].content == parts
    assert fine.warnings == ()
    assert [warning.partition(";")[0].partition(",")[0] for warning in odd.warnings] == [
        "a tool message has a part of type 'image_url'",
        "a part's video_url.url is no http",
        "a part has the type 'hologram'",
    ]


def test_tools_of_either_api_have_a_name(tmp_path: Path) -> None:
    tools = [{"type": "function", "name": "f"}, {"function": {"name": "g"}}, {"type": "web_search"}]
    [item] = read_samples(write(tmp_path, line(tools=tools)))
    assert (item.sample.tools, item.warnings) == (tools, ())


def test_no_key_is_lost_to_the_replacement_of_surrogates(tmp_path: Path) -> None:
    row = line(extra=0).replace("0}", '{"\\ud83d": 1, "\\ud83e": 2}}')
    assert "two keys of one object differ in halves" in problem_of(write(tmp_path, row))


def test_a_tool_message_without_the_id_of_its_call_is_warned_of(tmp_path: Path) -> None:
    answer = {"role": "tool", "content": "18"}
    for message, count in ((answer, 1), ({**answer, "tool_call_id": "c1"}, 0)):
        row = json.dumps({"messages": [USER, message]})
        found = load_dataset([write(tmp_path, row)]).warnings
        assert len([w for w in found if "tool_call_id" in w.message]) == count
