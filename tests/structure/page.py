"""The layers and the sizes as tables of Markdown."""

from collections.abc import Iterator, Sequence
from statistics import median

from rollbook.infra.reference.markdown import code, table
from rollbook.tests.structure.layers import LAYERS, layer_of, part_of
from rollbook.tests.structure.sizes import REASONS
from rollbook.tests.structure.tree import PRODUCT, Module, modules, product

_LARGEST = 12
_ABOUT = """# Structure

Read from the source. Each part's folders and modules are listed from the ground up: an import goes to a line above, or
to another part. The first lines of a folder's `__init__.py` say what may be changed in it."""


def page() -> str:
    """The whole page."""
    return "\n\n".join((_ABOUT, "## In short", _parts(), *_layers(), "## The largest files", _files())) + "\n"


def _parts() -> str:
    rows = [(code(f"{part}/"), *_figures(one for one in product() if part_of(one.name) == part)) for part in PRODUCT]
    rows.append(("all of it", *_figures(iter(product()))))
    tests = (one for one in modules().values() if part_of(one.name) == "tests")
    return table(("part", "files", "lines", "median", "largest"), [*rows, (code("tests/"), *_figures(tests))])


def _layers() -> Iterator[str]:
    for part in PRODUCT:
        rows = [_layer(part, layer) for layer in LAYERS[part]]
        yield f"## {part}/"
        yield table(("layer", "for", "files", "lines", "imports of this part"), rows)


def _layer(part: str, layer: str) -> tuple[str, ...]:
    members = [one for one in product() if part_of(one.name) == part and layer_of(one) == layer]
    doc = next((one for one in members if one.is_package), members[0]).doc
    below = {
        layer_of(modules()[name])
        for one in members
        for name in one.imports
        if name in modules() and part_of(name) == part and not modules()[name].is_package
    }
    used = ", ".join(code(name) for name in LAYERS[part] if name in below and name != layer)
    return (code(layer), doc.split("\n\n")[0], *_figures(iter(members))[:2], used)


def _files() -> str:
    largest = sorted(product(), key=lambda one: (-one.lines, one.name))[:_LARGEST]
    return table(
        ("file", "lines", "why above the limit"),
        ((code(one.place), str(one.lines), REASONS.get(one.place, "")) for one in largest),
    )


def _figures(members: Iterator[Module]) -> Sequence[str]:
    lines = [one.lines for one in members]
    return (f"{len(lines):,}", f"{sum(lines):,}", f"{median(lines):.0f}", f"{max(lines):,}")
