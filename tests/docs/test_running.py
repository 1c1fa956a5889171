"""What runs the pages finds what is wrong with one."""

from pathlib import Path

import pytest

from rollbook.tests.docs.blocks import Block, Shown, _blocks, shown_in, written_by
from rollbook.tests.docs.output import is_as_shown
from rollbook.tests.docs.shell import Shell

PAGE = """# Page

<!-- exits 1 -->
```sh
rollbook diff run-a run-b
```

1.  In a list:

    <!-- not run: nobody has this here -->
    ```console
    $ one \\
      two
    a 1
    $ three
    ```
"""


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["PASS 3 of 4", "head ab12"], ["PASS 17 of 90", "head 77fe"], True),
        (["PASS 3 of 4"], ["FAIL 3 of 4"], False),
        (["PASS 3"], ["PASS 3", "and more"], False),
        (["PASS 3", "..."], ["PASS 3", "and", "more"], True),
        (["...", "last"], ["first", "last", "behind"], False),
        (["PASS", "last"], ["last", "PASS"], False),
        (["live   last update ..."], ["live  last update 2 min ago"], True),
        (["live   last update ..."], ["dead  last update 2 min ago"], False),
        (["    a    1", "", "b"], ["a 22", "b"], True),
        (["chart ▁▂█"], ["chart ▂"], True),
        (["a.b"], ["axb"], False),
    ],
)
def test_what_is_printed_is_held_against_what_is_shown(shown: list[str], printed: list[str], same: bool) -> None:
    assert is_as_shown(shown, printed) is same


def test_blocks_are_found_with_their_markers() -> None:
    first, second = _blocks("page.md", PAGE)
    assert (first.line, first.language, first.exits, first.not_run) == (5, "sh", 1, "")
    assert (second.place, second.exits) == ("page.md:12", 0)
    assert second.not_run == "nobody has this here"
    assert shown_in(second) == [Shown("one \\\n  two", ("a 1",)), Shown("three", ())]


def test_a_page_does_not_find_what_it_writes() -> None:
    def block(text: str) -> Block:
        return Block("page.md", 1, "sh", f"{text}\n")

    assert written_by((block("rollbook history export --out a.avro"), block("rollbook audit a.avro"))) == {"a.avro"}
    assert written_by((block("rollbook audit a.avro"), block("rollbook history export --out a.avro"))) == set()


@pytest.fixture
def shell(tmp_path: Path, programs: Path) -> Shell:
    (tmp_path / "page").mkdir()
    return Shell(tmp_path / "page", tmp_path / "own", programs, {"ROLLBOOK_DATA_DIR": str(tmp_path)})


def test_a_command_that_fails_ends_its_block(shell: Shell) -> None:
    assert shell.run("false\necho behind").output == ""
    assert shell.run("false | true").code == 1
    assert shell.run("no-such-command").code == 127
    answer = shell.run("rollbook audit --nonsense")
    assert (answer.code, answer.output.startswith("Error: ")) == (2, True)
    assert shell.run("rollbook validate no-such-bundle").code == 2


def test_an_answer_that_is_announced_must_be_given(shell: Shell) -> None:
    assert shell.run("rollbook broker status", exits=1).code == 0
    assert shell.run("rollbook --version", exits=1).code == 1
    assert shell.run("rollbook audit --nonsense", exits=1).code == 2


def test_what_a_block_exports_is_there_for_the_next(shell: Shell) -> None:
    shell.run("export ROLLBOOK_TOPIC_PREFIX=mine.")
    shell.run("export ROLLBOOK_TOPIC_PREFIX=other.", alone=True)
    assert shell.run('echo "$ROLLBOOK_TOPIC_PREFIX"').output == "mine.\n"
    assert shell.exported()["ROLLBOOK_TOPIC_PREFIX"] == "mine."


def test_what_other_tests_run_is_not_carried_out(shell: Shell) -> None:
    assert shell.run("pip install 'rollbook[broker,html]' && rollbook broker start && rollbook demo --seed 1").code == 0
    assert shell.run("ROLLBOOK_NIGHTLY=1 make test && make soak MINUTES=1 && pytest tests/docs").code == 0
    assert shell.run("python -m rollbook.tests.simulation.run --seeds 5").code == 0
    assert shell.run("python -m rollbook.tests.docs.printed").code == 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("make nothing", "nothing"),
        ('make installs NOX_ARGS="-s nothing"', "nothing"),
        ("pip install '.[brokr]'", "brokr"),
        ("pytest tests/nothing -k some", "tests/nothing"),
        ("rollbook demo --nothing", "--nothing"),
        ("rollbook broker start --port many", "valid integer"),
        ("python -m rollbook.tests.docs.no_such_program", "no_such_program"),
        ("python -m rollbook.tests.fuzz --minute 5 --target nothing", "nothing"),
        ("python -m rollbook.tests.simulation.run --nothing", "--nothing"),
    ],
)
def test_but_is_given_what_there_is(shell: Shell, command: str, said: str) -> None:
    answer = shell.run(command)
    assert answer.code != 0
    assert said in answer.output
