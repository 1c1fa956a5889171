"""What an installed function says, in words that text and page share. Escaped for a terminal, not for HTML."""

from collections.abc import Iterator

from rollbook.replay.engine.result import Agreement, Beside, InstalledCode, Point, RecordedCode
from rollbook.schemas.text import visible

MEANING = {
    Agreement.ALL: "recorded, ours and installed are one number",
    Agreement.OURS_DIFFERS: "their number is reproduced: our reimplementation or the convention is off",
    Agreement.THEIRS_DIFFERS: (
        "ours reproduces the record and theirs does not: another version is installed than recorded, or it is called "
        "otherwise"
    ),
    Agreement.RECORD_DIFFERS: (
        "ours and theirs are one number that is not the recorded one: the record is wrong, or was computed from other "
        "inputs"
    ),
    Agreement.NONE: "recorded, ours and installed are three numbers: the record may be of other inputs",
    Agreement.REPRODUCED: "their number is reproduced; no kernel of ours computes the stage",
    Agreement.NOT_REPRODUCED: "theirs does not reproduce the record, and no kernel of ours computes the stage",
    Agreement.NOT_COMPARED: "nothing was compared",
}


def heading(found: Beside) -> str:
    return f"installed {visible(found.code.name)} beside {found.stage}: {found.agreement}"


def details(found: Beside) -> Iterator[tuple[str, str]]:
    """(name, text) of what is known: the meaning, each field of each rank, what was recorded and what is installed."""
    yield "meaning", MEANING[found.agreement]
    for rank in found.ranks:
        of = f"rank {rank.rank}, " if len(found.ranks) > 1 else ""
        if not rank.fields:
            yield "compared", f"{of}nothing: {visible(rank.reason)}"
        for field in rank.fields:
            theirs = field.theirs
            counted = f"{theirs.diverging_values:,} of {theirs.values:,} differ from the record"
            first = "" if theirs.first is None else f", first {_point(theirs.first)}"
            yield "compared", f"{of}{theirs.field}: {field.agreement}; {counted}{first}"
    if not found.ranks:
        yield "compared", "nothing: no rank has the stage under replay"
    if found.recorded is not None:
        yield "recorded code", visible(recorded_line(found.recorded), 1_000)
    yield "installed code", visible(code_line(found.code), 1_000)
    if found.adapts is not None:
        yield "it adapts", visible(code_line(found.adapts), 1_000)


def recorded_line(code: RecordedCode) -> str:
    convention = f", convention {code.convention}" if code.convention else ""
    contract = f"{code.implementation} {code.contract_version}" if code.implementation else "no contract"
    return f"{contract}{convention}, commit {code.commit or 'not recorded'}, torch {code.torch_version or 'unknown'}"


def code_line(code: InstalledCode) -> str:
    defined = "" if code.defined == code.name else f", defined as {code.defined}"
    package = f"{code.package} {code.version}" if code.package else "of no installed distribution"
    file = f"{code.file} sha256 {code.sha256 or 'unreadable'}" if code.file else "built in"
    return f"{code.name}{defined}, {package}, {file}"


def _point(point: Point) -> str:
    sample = "" if point.sample_id is None else f"sample {visible(point.sample_id)}"
    token = "" if point.token_offset is None else f", token {point.token_offset}"
    place = f"{sample}{token}: " if sample else ""
    return f"{place}recorded {point.expected:.9g}, installed {point.actual:.9g}, absolute error {point.abs_error:.3g}"
