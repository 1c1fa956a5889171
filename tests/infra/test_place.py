"""Where the commands look for a run."""

import pytest

from rollbook.infra.looking.place import _partition
from rollbook.schemas.partition import partition_of


@pytest.mark.parametrize("partition", [0, 3])
def test_the_strays_of_a_partition_lie_in_it(partition: int) -> None:
    assert _partition(f"~partition-{partition}", 4) == partition


@pytest.mark.parametrize("name", ["run-7", "~partition-4", "~partition-x", "~partition-", "~partition-\u0661"])
def test_any_other_name_lies_where_its_hash_says(name: str) -> None:
    assert _partition(name, 4) == partition_of(name, 4)
