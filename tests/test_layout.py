"""The layout, checked: what a folder may import. That the wheel is the tree, tests/install holds."""

import pytest

from rollbook.tests.structure.layers import ALLOWED, LAYERS, OPEN, SETTINGS_LEAF, layer_of, part_of
from rollbook.tests.structure.page import page
from rollbook.tests.structure.sizes import MOST_LINES, REASONS
from rollbook.tests.structure.tree import PARTS, ROOT, Module, closure, is_within, modules, product

# A rule or a fold that imports one of these is not a function of the log alone.
IMPURE = ("confluent_kafka", "typer", "rich", "socket", "subprocess", "threading", "time", "random", "uuid", "os")
NO_TORCH = ("schemas", "producers", "processors", "replay")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_imports_only_what_lies_below_it(part: str) -> None:
    wrong = [
        f"{one.place} imports {name}"
        for one in _modules_of(part)
        for name in sorted(one.imports)
        if name.startswith("rollbook.") and not is_within(name, ALLOWED[part])
    ]
    assert wrong == []


@pytest.mark.parametrize("part", LAYERS)
def test_within_a_part_imports_go_down(part: str) -> None:
    order = {layer: height for height, layer in enumerate(LAYERS[part])}
    files = [one for one in _modules_of(part) if not (one.is_package and one.package in OPEN)]
    assert {layer_of(one) for one in files} == order.keys(), (
        "a folder or module has no line in the table, or a line nothing"
    )
    wrong = [
        f"{one.place} imports {name}"
        for one in files
        for name in sorted(one.imports & modules().keys())
        if part_of(name) == part
        and not (modules()[name].is_package and modules()[name].package in OPEN)
        and order[layer_of(modules()[name])] > order[layer_of(one)]
    ]
    assert wrong == []


def test_no_modules_import_one_another_in_a_circle() -> None:
    """What is within a layer has an order, too: what imports nothing that is left is taken away, until none is left."""
    left = {one.name: {*one.imports} for one in product() if not one.is_package}
    while free := [name for name, imports in left.items() if not imports & left.keys() - {name}]:
        for name in free:
            del left[name]
    assert sorted(left) == []


def test_every_module_says_what_it_is_for_and_is_no_larger_than_it_may_be() -> None:
    assert [one.place for one in modules().values() if not one.doc and one.lines] == []
    assert {one.place for one in product() if one.lines > MOST_LINES} == REASONS.keys()


def test_every_folder_says_what_may_be_changed_in_it() -> None:
    folders = [one for one in product() if one.is_package and one.package not in OPEN]
    assert [one.place for one in folders if "\n\n" not in one.doc] == []


def test_the_structure_is_told_with_every_layer() -> None:
    sections = dict(section.split("\n", 1) for section in page().split("\n## ")[1:])
    for part, layers in LAYERS.items():
        assert all(f"| `{layer}` |" in sections[f"{part}/"] for layer in layers)


def test_the_settings_leaf_leans_on_errors_and_names_alone() -> None:
    leaned = {name for name in modules()[SETTINGS_LEAF].imports if name.startswith("rollbook.")}
    assert {
        name for name in leaned if not is_within(name, ("rollbook.schemas.errors", "rollbook.infra.misspelled"))
    } == set()


@pytest.mark.parametrize("part", ["producers", "replay"])
def test_clients_and_replay_take_only_what_is_pure_of_the_processors(part: str) -> None:
    wrong = []
    for one in _modules_of(part):
        taken = frozenset(name for name in one.imports if is_within(name, ("rollbook.processors",)))
        for name in sorted(closure(taken) & modules().keys()):
            if is_within(name, ("rollbook.processors",)):
                impure = [other for other in modules()[name].imports if is_within(other, IMPURE)]
                wrong += [f"{one.place} -> {name} -> {other}" for other in impure]
    assert wrong == []


@pytest.mark.parametrize("part", NO_TORCH)
def test_no_part_but_the_demo_imports_torch(part: str) -> None:
    files = [*_modules_of(part), *(one for one in _modules_of("infra") if "demo" not in one.path.parts)]
    assert [one.place for one in files if any(is_within(name, ("torch",)) for name in one.imports)] == []


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_typed_and_linked(part: str) -> None:
    assert (ROOT / part / "py.typed").exists()
    assert (ROOT / "links" / "rollbook" / part).resolve() == ROOT / part
    assert not (ROOT / "links" / "rollbook" / "__init__.py").exists()


def _modules_of(part: str) -> list[Module]:
    return [one for one in modules().values() if part_of(one.name) == part]
