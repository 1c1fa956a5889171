"""The page of the doctor: what it looks at, and what it wants of a broker."""

from rollbook.infra.doctor.checks import CHECKS
from rollbook.infra.doctor.cluster import DEMANDS
from rollbook.infra.reference.markdown import code, page, table


def doctor() -> str:
    """Every check, and every setting of a broker that matters."""
    return page(
        "What the doctor looks at",
        "From `infra/doctor/`. `rollbook doctor` says what is not so, with its remedy; unsafe is what puts data or "
        "exactly-once at stake, or cannot work at all. The topics' settings are in [topics](topics.md).",
        table(("check",), ((check.about,) for check in CHECKS)),
        "## Settings of a broker",
        table(
            ("setting", "must be", "else", "because"),
            ((code(one.setting), one.wanted, one.level.value, one.why) for one in DEMANDS),
        ),
    )
