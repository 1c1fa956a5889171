"""Whatever an evaluation set's owner hands over names its tasks, or is refused: nothing passes in silence that could
never have matched."""

import base64
import hashlib
import json
import unicodedata
from pathlib import Path

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.infra.settings import Topic
from rollbook.producers.redaction.policy import Redaction, Treatment
from rollbook.replay.audit.audit import stretch_of
from rollbook.replay.history.export import export
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.prove.asked import Asked, read_asked
from rollbook.replay.prove.proof import Absence, DoubtKind, Found
from rollbook.replay.prove.prove import OfPolicy, prove
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.rollout import TaskSource
from rollbook.tests.replay.story import SETTINGS, Story
from rollbook.tests.replay.test_prove import group, hash_of, policy

HASH = hash_of("held out")
TASK = TaskSource(task_id="held-out/17", prompt_hash=HASH, dataset="made-up/train", row=17)
KEY = b"a key of the redaction"


def asked_by(folder: Path, content: str | bytes, key: bytes = b"") -> Asked:
    path = folder / "eval.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_asked(path, key=key)


@pytest.mark.parametrize(
    "text",
    [
        HASH,
        f"\ufeff{HASH.upper()}\r\n",
        f"  sha256:{HASH}  ",
        f"SHA256:{HASH}",
        f"0x{HASH}",
        f"{HASH}  prompts/held out.txt",
        f"{HASH} *prompts.bin",
        f"SHA256 (prompts.txt) = {HASH}",
        f'"{HASH}"',
        f'{{"prompt_hash": "sha256:{HASH}", "answer": [1, 2]}}',
        f'[\n "{HASH}"\n]',
        f'[{{"prompt_hash": "{HASH}", "task_id": null}}]',
        f"prompt_hash\n{HASH}\n",
        f'# a table\nid,Prompt_Hash,text\n1,{HASH},"What, and\nwhy?"\n',
        f"prompt_hash\ttask_id\n{HASH}\t\n",
        f"{hash_of('another')}\r{HASH}\r",
        HASH[:12],
        HASH[:31].upper(),
        "held-out/17",
        '"held-out/17"',
        '{"task_id": "held-out/17"}',
        '["other", "held-out/17"]',
        "task_id;n\nheld-out/17;1\n",
        f"nothing\nheld-out/17\n# {hash_of('another')}\n",
    ],
)
def test_what_is_plain_is_taken(tmp_path: Path, text: str) -> None:
    assert asked_by(tmp_path, text).names(TASK) != ()
    assert asked_by(tmp_path, text).names(TASK.but(task_id="other", prompt_hash=hash_of("other"))) in ((), ("other",))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (HASH[:63], "looks like a hash and is none"),
        (f"{HASH}0", "looks like a hash and is none"),
        (f"{HASH},", "looks like a hash and is none"),
        (f"{HASH},x", "looks like a hash and is none"),
        (f"- {HASH}", "looks like a hash and is none"),
        (f"'{HASH}'", "looks like a hash and is none"),
        (f"{HASH} # held out", "looks like a hash and is none"),
        (f"{HASH} {HASH}", "looks like a hash and is none"),
        (f"{HASH}  {HASH}", "looks like a hash and is none"),
        (f'"{HASH[1:]}"', "looks like a hash and is none"),
        (f"sha256:{HASH[:23]}...", "looks like a hash and is none"),
        (f"sha256:{HASH[:12]}", "looks like a hash and is none"),
        (HASH.translate({ord("0") + n: 0xFF10 + n for n in range(10)}), "looks like a hash and is none"),
        ("63c8b6\u0430b1298f2\u043004d44f071c809465e920f237f1b\u043002f94f6\u04305eb47de75d12", "looks like a hash"),
        (f"\u200b{HASH}", "looks like a hash and is none"),
        (hashlib.md5(b"held out").hexdigest(), "looks like a hash and is none"),
        (":".join(HASH[at : at + 2] for at in range(0, 64, 2)), "looks like a hash and is none"),
        ("-".join(HASH[at : at + 8] for at in range(0, 64, 8)), "looks like a hash and is none"),
        (" ".join(HASH[at : at + 4].upper() for at in range(0, 64, 4)), "looks like a hash and is none"),
        (f'"{HASH[:32]}:{HASH[32:]}"', "looks like a hash and is none"),
        (base64.b64encode(bytes.fromhex(HASH)).decode(), "looks like a hash and is none"),
        (f"#{HASH}", "looks like a hash and is none"),
        ("- held-out/17", "looks like an entry of a list"),
        ("* held-out/17", "looks like an entry of a list"),
        ("17. held-out/17", "looks like an entry of a list"),
        ("task_id: held-out/17", "looks like an entry of a list"),
        ("#17", "is no comment"),
        ("gsm8k,17", "a table needs a header"),
        ("[AIME] 17", "no JSON"),
        ("'held-out/17'", "looks like a part of a list"),
        ('{"prompt": "What is 2+2?"}', "give its prompt_hash or its task_id"),
        (f'{{"prompt_hash": "{HASH[:12]}"}}', "has a prompt_hash that is none"),
        ('{"task_id": ["a"]}', "neither a text nor a number"),
        ('{"task_id": "a\\u0000"}', "is neither a prompt hash"),
        ('{"task_id": ""}', "is neither a prompt hash"),
        ("{held out}", "is no JSON"),
        ('"held-out/17",', "is no JSON"),
        ("dropped", "name that was not published"),
        ("0" * 64, "hash that was not published"),
        (f"sha256:{'0' * 64}", "hash that was not published"),
        ("a\x07b", "is neither a prompt hash"),
        ("x" * 300, "is neither a prompt hash"),
    ],
)
def test_what_can_never_match_is_refused_where_it_stands(tmp_path: Path, line: str, told: str) -> None:
    with pytest.raises(BadInput, match=f"eval.txt line 1 .*{told}"):
        asked_by(tmp_path, line)
    if not line.startswith("["):
        with pytest.raises(BadInput, match=f"eval.txt line 4 .*{told}"):
            asked_by(tmp_path, f"# a comment\n\nsums\r\n{line}\n")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "names no task"),
        (b"# nothing\n\n", "names no task"),
        (b"prompt_hash\n", "names no task"),
        (b"[]", "names no task"),
        (b"\xff\xfe6\x003\x00", "is no UTF-8 text"),
        (b"6\x003\x00", "line 1 is neither"),
        (b'["a",\n"b"', "line 2 is no JSON"),
        (b'["a", true]', "entry 2 is neither a text nor a number"),
        (b"[" * 100_000, "line 1 is no"),
        (b"task_id,n\na,1\nb,2,3\n", "line 3 has 3 cells, and the header 2"),
        (b"task_id,n\na,1\n,2\n", "line 3 names no task"),
        (b'task_id,n\n"a\n', "line 2 is no row of a table"),
        (b"id,prompt_hash\n1,abc\n", "line 2 has a prompt_hash that is none"),
    ],
)
def test_a_file_that_asks_nothing_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        asked_by(tmp_path, content)
    with pytest.raises(BadInput, match="cannot be read"):
        read_asked(tmp_path / "not there.txt")


@pytest.mark.parametrize(
    "task_id",
    [
        "products of two",
        "01a22c3e-b007-746a-9171-2d3d6da6a5f1",
        "01A22C3E-B007-746A-9171-2D3D6DA6A5F1",
        "math/01a22c3e-b007-746a-9171-2d3d6da6a5f1-2024-01-02",
        "- 17",
        "deadbeefdeadbeef",
        "20240101000117",
        "openai/gsm8k/test:17",
        "MATH (level 5) #17",
        "7",
        "tâche-17",
        "数学/17",
        hashlib.md5(b"held out").hexdigest(),
        "What is 2, and 3?",
        '["a"]',
        "#17",
        "sha256:cut",
    ],
)
def test_an_id_of_any_spelling_is_found_as_it_is_and_as_clients_publish_it(tmp_path: Path, task_id: str) -> None:
    """As JSON whatever it is; on a line where it has not the look of anything else."""
    task, decomposed = TASK.but(task_id=task_id), unicodedata.normalize("NFD", task_id)
    asking = [json.dumps({"task_id": task_id})]
    asking += [task_id] if not set(task_id) & set(',"') and len(task_id) < 32 and task_id[0] not in "#s-" else []
    for text in [*asking, json.dumps({"task_id": decomposed})]:
        asked = asked_by(tmp_path, text, KEY)
        for published in (task, Redaction().task(task), Redaction(key=KEY).task(task)):
            assert asked.names(published) != ()


@pytest.mark.parametrize("key", [b"", KEY])
def test_what_clients_redacted_is_found_by_what_it_was(key: bytes) -> None:
    """They hash an id that is a path or a text, and with a key the hash of the prompt."""
    published = Redaction(key=key).task(TASK)
    assert published.task_id.startswith("sha256:")
    assert Asked.of(task_ids=[TASK.task_id], key=key).names(published) == (TASK.task_id,)
    assert Asked.of([HASH], key=key).names(published) == (HASH,)
    assert Asked.of([HASH], [TASK.task_id], key=key).names(published) == (HASH, TASK.task_id)
    assert Asked.of(["f" * 64], ["held-out/18"], key=key).names(published) == ()
    assert Asked.of([published.task_id]).names(published) == (published.task_id.removeprefix("sha256:"),)


@pytest.mark.parametrize("key", [b"", KEY])
def test_a_key_hides_nothing_from_those_who_have_it_and_nothing_of_those_who_have_none(key: bytes) -> None:
    """Not all clients of a run need to have it, and editors end the last line."""
    published = Redaction(key=key).task(TASK)
    for given in (KEY, KEY + b"\n", KEY + b"\r\n"):
        assert Asked.of([HASH], key=given).names(published) == (HASH,)
        assert Asked.of(task_ids=[TASK.task_id], key=given).names(published) == (TASK.task_id,)


@pytest.mark.parametrize("key", [b"", KEY])
@pytest.mark.parametrize("spelled", [HASH, HASH.upper(), f"sha256:{HASH}"])
def test_a_hash_may_also_be_an_id(spelled: str, key: bytes) -> None:
    """Some data sets name their tasks by hashes, which clients hash once more; some by the first digits of one."""
    redaction = Redaction(key=key)
    for task_id in (HASH, HASH.upper(), f"sha256:{HASH}", f"SHA256:{HASH}", HASH[:16]):
        named = TASK.but(task_id=task_id, prompt_hash=hash_of("another"))
        assert Asked.of([spelled], key=key).names(named) == (HASH,)
        if not task_id.startswith("SHA"):
            assert Asked.of([spelled], key=key).names(redaction.task(named)) == (HASH,)


def test_a_text_is_found_by_its_hash() -> None:
    assert Asked.of(task_ids=["held out"]).names(TASK) == ("held out",)


@pytest.mark.parametrize(("hashes", "ids"), [(["sums"], []), ([HASH[:63]], []), ([], ["dropped"]), ([], [""])])
def test_from_python_what_can_never_match_is_refused_too(hashes: list[str], ids: list[str]) -> None:
    with pytest.raises(BadInput):
        Asked.of(hashes, ids)


@pytest.fixture
def story() -> Story:
    """One policy of one update, and a group that was only evaluated."""
    made = Story().opened()
    made.update("u0", [group(made, "a", "sums")])
    policy(made, 1, 0, "u0")
    group(made, "b", "powers")
    return made


def absence(story: Story, asked: Asked, version: int = 1) -> Absence:
    stretch = stretch_of(story.log, SETTINGS, None, story.run_id)
    found = prove(story.log, stretch, OfPolicy(version), asked=asked).absence
    assert found is not None
    return found


def test_how_many_of_the_names_are_known_is_told_by_kind(story: Story) -> None:
    found = absence(story, Asked.of([hash_of("powers"), HASH], ["powers", "tensors", "vectors"]))
    assert (found.known_prompt_hashes, found.known_task_ids, found.occurring) == (1, 1, 2)
    assert (found.proven, found.warning) == (True, "")
    found = absence(story, Asked.of([HASH], ["powers"]))
    assert found.proven
    assert found.warning.startswith("the run knows none of the prompt hashes (1), trained on or not")
    found = absence(story, Asked.of([hash_of("sums")], ["tensors"]))
    assert not found.proven
    assert found.warning.startswith("the run knows none of the task ids (1), trained")
    found = absence(story, Asked.of([hash_of("sums")], ["sums"]))
    assert {hit.asked for hit in found.present} == {hash_of("sums"), "sums"}


def test_a_trajectory_and_its_group_name_the_task_too_where_they_are_no_short_names(story: Story) -> None:
    minted = "01a22c3e-b007-746a-9171-2d3d6da6a5f1"
    story.update("u1", [group(story, minted, "products")])
    policy(story, 2, 1, "u1")
    for spelled in (minted, minted.upper()):
        found = absence(story, Asked.of(task_ids=[spelled, "a", "a.0"]), 2)
        assert {(hit.found, hit.asked, hit.update_id) for hit in found.hits} == {(Found.IN_WEIGHTS, spelled, "u1")}


def test_a_uuid_is_one_in_either_case(tmp_path: Path) -> None:
    """However it was published, as it is or hashed; and no hash for its many digits."""
    lower = "01a22c3e-b007-746a-9171-2d3d6da6a5f1"
    for line in (lower, lower.upper(), f"math/{lower}"):
        assert asked_by(tmp_path, line).task_ids == {line}
    for there in (lower, lower.upper(), lower.title()):
        for asked in (lower, lower.upper()):
            assert Asked.of(task_ids=[asked]).names(TASK.but(task_id=there)) == (asked,)
    digest = hashlib.sha256(lower.encode()).hexdigest()
    assert Asked.of(task_ids=[lower.upper()]).names(TASK.but(task_id=f"sha256:{digest}")) == (lower.upper(),)


@pytest.mark.parametrize(
    "name", ["gsm8k/test/17", "/data/eval/row-17/", "s3://bucket/eval.json", "What is two and two, and why is it?"]
)
def test_what_clients_may_have_truncated_leaves_the_question_open(story: Story, name: str) -> None:
    """Unless they show that they do not: by other rows, whose id is the name."""
    redaction = Redaction(paths=Treatment.TRUNCATE, endpoints=Treatment.TRUNCATE, texts=Treatment.TRUNCATE)
    task, other = TASK.but(task_id=name), TASK.but(task_id=f"other {name}")
    for published, version in ((redaction.task(task), 2), (Redaction().task(other), 3)):
        story.task = published
        story.update(f"u{version}", [story.group(f"g{version}")])
        policy(story, version, version - 1, f"u{version}")
    assert redaction.task(task).task_id != name
    found = absence(story, Asked.of(task_ids=[name, "powers"]), 3)
    assert [doubt.kind for doubt in found.open_questions] == [DoubtKind.NOT_PUBLISHED]
    assert not found.proven
    assert absence(story, Asked.of(task_ids=["task-17", "powers"]), 3).proven
    story.task = Redaction().task(task)
    story.group("evaluated")
    assert absence(story, Asked.of(task_ids=[name, "powers"]), 3).proven


def test_a_set_of_which_nothing_is_known_is_absent_with_a_warning(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranges = [OffsetRange(SETTINGS.topic(topic), 0) for topic in (Topic.LIFECYCLE, Topic.DECISIONS)]
    file = str(export(story.log, SETTINGS, ranges, tmp_path / "run.avro").path)
    unknown, known = tmp_path / "unknown.txt", tmp_path / "known.txt"
    unknown.write_text(f"{HASH}\ntensors\n")
    known.write_text("powers\ntensors\n")
    ask = ["prove", "--run", story.run_id, "--policy", "1", file, "--absent"]
    assert rollbook([*ask, str(unknown)]) == 0
    told = capsys.readouterr()
    assert "ABSENT, BUT NOT KNOWN  1 prompt hash and 1 task id: none was trained on in this run" in told.out
    assert (
        "WARNING: the run knows none of the prompt hashes (1) and none of the task ids (1), trained on or not"
        in told.out
    )
    assert told.err.startswith("Warning: the run knows none of the prompt hashes (1) and none of the task ids (1)")
    assert rollbook([*ask, str(unknown), "--json"]) == 0
    told = capsys.readouterr()
    (found,) = [one for one in map(json.loads, told.out.splitlines()) if one["kind"] == "absence"]
    assert (found["absent"], found["known_prompt_hashes"], found["known_task_ids"]) == (True, 0, 0)
    assert told.err == f"Warning: {found['warning']}\n"
    assert rollbook([*ask, str(known)]) == 0
    told = capsys.readouterr()
    assert "ABSENT  0 prompt hashes and 2 task ids: none was trained on in this run" in told.out
    assert "known anywhere in the run, trained on or not: 0 of the prompt hashes, 1 of the task ids" in told.out
    assert told.err == ""


def test_a_key_is_asked_with_and_is_one(story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranges = [OffsetRange(SETTINGS.topic(topic), 0) for topic in (Topic.LIFECYCLE, Topic.DECISIONS)]
    file = str(export(story.log, SETTINGS, ranges, tmp_path / "run.avro").path)
    (tmp_path / "key").write_bytes(b"\n")
    (tmp_path / "eval.txt").write_text(hash_of("sums"))
    ask = ["prove", "--run", story.run_id, "--policy", "1", file, "--redaction-key", str(tmp_path / "key")]
    assert rollbook(ask) == 2
    assert "--redaction-key" in capsys.readouterr().err
    ask += ["--absent", str(tmp_path / "eval.txt")]
    assert rollbook(ask) == 2
    assert "is empty" in capsys.readouterr().err
    (tmp_path / "key").write_bytes(KEY)
    assert rollbook(ask) == 1
