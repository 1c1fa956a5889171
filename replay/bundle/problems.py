"""What can be wrong with a bundle: one line each, naming file, field and remedy."""

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible
from rollbook.schemas.wording import worded

CAPTURE_AGAIN = "capture the bundle again"
_MAX_PROBLEMS_PER_FILE = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a bundle. `file` is relative to the bundle, `field` a dotted path inside it or empty."""

    file: str
    field: str
    what: str
    remedy: str

    def __str__(self) -> str:
        where = f"{visible(self.file)}: {visible(self.field)}" if self.field else visible(self.file)
        return f"{where}: {self.what}; {self.remedy}"


class BadBundle(BadInput):
    """The bundle is refused. `problems` holds what is wrong, the message the first of them."""

    def __init__(self, bundle: str, *problems: Problem) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"bundle {visible(bundle)}: {problems[0]}{more}")
        self.bundle = bundle
        self.problems = problems


class Refused(Exception):
    """A file could not be read as what it should be."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems


def problems_of(file: str, error: ValidationError) -> Iterator[Problem]:
    """A record's refusal as problems that name the field, without quoting what a hostile file put there."""
    found = error.errors(include_url=False, include_input=False)
    # Of a list whose every item was refused pydantic says that it has none.
    below = {detail["loc"][:depth] for detail in found for depth in range(len(detail["loc"]))}
    true = [detail for detail in found if detail["type"] != "too_short" or detail["loc"] not in below]
    for detail in true[:_MAX_PROBLEMS_PER_FILE]:
        field = ".".join(str(step) for step in detail["loc"] if step != "[key]")
        if detail["type"] == "extra_forbidden":
            yield Problem(file, field, "unknown key", "remove it, or use the version of rollbook that wrote it")
        elif detail["type"] == "missing":
            yield Problem(file, field, "missing", CAPTURE_AGAIN)
        elif detail["type"] == "model_type":
            yield Problem(file, field, "it must be an object", "correct the value")
        else:
            yield Problem(file, field, visible(worded(detail)), "correct the value")
