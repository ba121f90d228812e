"""Where renderings differ from what was sampled, and what that does to the trained tokens."""

from arkdev.backends.local.drift import DriftCheck
from arkdev.backends.local.probe_dialogues import PROBES, Dialogue
from tests.unit.backends.local.toy_rendering import ToyRendering

USER = {"role": "user", "content": "how is it"}
TOOL = {"role": "tool", "content": "rain"}


def says(content):
    return {"role": "assistant", "content": content}


def num_words(text):
    return len(text.split())


def checked(*dialogues, drops_notes=False):
    return list(DriftCheck(ToyRendering(drops_notes=drops_notes)).check(dialogues))


def sampled(rendering, *texts):
    return tuple(tuple(rendering.ids(f"{text} <end>")) for text in texts)


def test_a_template_that_writes_every_message_the_same_has_no_drift():
    (drift,) = checked(Dialogue("a", (USER, says("fine"), TOOL, says("good"), USER, says("bye"))))
    assert (drift.drifts, drift.unread, drift.refusal) == ((), (), None)
    assert (drift.num_turns, drift.num_sampled, drift.is_as_sampled) == (3, 6, False)


def test_what_a_template_drops_is_cut_with_the_place_and_the_number_of_trained_tokens():
    messages = (USER, says("well (hmm) fine"), TOOL, says("good"), USER, says("bye"))
    (report,) = checked(Dialogue("a", messages), drops_notes=True)
    (drift,) = report.drifts
    assert (drift.kind, drift.turn) == ("cut", 3)
    prompt = "<user> how is it <end> <glue> <assistant>"
    assert drift.before == f"{prompt} well"
    assert drift.position == num_words(f"{prompt} well")
    assert (drift.kept, drift.fresh) == ("(hmm)", "fine")
    assert drift.num_tokens == num_words("(hmm) fine <end> good <end>")
    assert report.num_sampled == num_words("well (hmm) fine <end> good <end> bye <end>")


def test_answers_in_other_pieces_than_the_tokenizers_own_shift_a_rendering_from_scratch():
    rendering = ToyRendering()
    messages = (USER, says("he llo"), TOOL, says("good"))
    rendering.answer_ids(messages)
    dialogue = Dialogue("a", messages, sampled=sampled(rendering, "oh he llo", "good"))
    (report,) = DriftCheck(rendering).check([dialogue])
    (drift,) = report.drifts
    assert (drift.kind, drift.turn, drift.kept, drift.fresh) == ("shifted", 2, "oh", "he")
    assert drift.num_tokens == num_words("oh he llo <end> good <end>")
    assert report.is_as_sampled


def test_an_answer_that_is_read_otherwise_is_shown():
    rendering = ToyRendering()
    dialogue = Dialogue("a", (USER, says("fine")), sampled=sampled(rendering, "fine indeed"))
    (report,) = DriftCheck(rendering).check([dialogue])
    (unread,) = report.unread
    assert (unread.turn, unread.field) == (1, "content")
    assert (unread.written, unread.read) == ("fine", "fine indeed")


def test_branches_share_their_turns():
    rendering = ToyRendering()
    start = (USER, says("fine"))
    branches = [
        Dialogue(f"b {name}", (*start, TOOL, says(name)), group="b") for name in ("one", "two")
    ]
    reports = list(DriftCheck(rendering).check(branches))
    assert [report.drifts for report in reports] == [(), ()]
    assert [report.num_turns for report in reports] == [2, 2]


def test_messages_that_were_given_are_no_answers():
    dialogue = Dialogue("a", (USER, says("given"), USER, says("asked for")), num_given=3)
    (report,) = checked(dialogue)
    assert (report.num_turns, report.num_sampled) == (1, 3)


def test_the_built_in_dialogues_hold_what_templates_do_differently():
    calls = [
        message.get("tool_calls") or [] for dialogue in PROBES for message in dialogue.messages
    ]
    assert max(map(len, calls)) > 1, "parallel calls"
    assert any("reasoning_content" in m for dialogue in PROBES for m in dialogue.messages)
    groups = [dialogue.group for dialogue in PROBES if dialogue.group]
    assert len(groups) > len(set(groups)), "branches"
    assert len({dialogue.name for dialogue in PROBES}) == len(PROBES)
