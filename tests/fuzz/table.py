"""All that takes bytes or text from outside, and what is not fuzzed, with the reason."""

from rollbook.tests.fuzz import archives, files, handed, histories, records, texts, web
from rollbook.tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target for part in (records, histories, archives, files, handed, texts, web) for target in part.TARGETS
}
