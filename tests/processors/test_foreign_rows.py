"""What others wrote into the ledger topic is told with its key, and never a defect."""

import pytest

from rollbook.processors.ledger.keys import key_of, parse_key
from rollbook.processors.ledger.rebuild import Rebuild
from rollbook.schemas.errors import BadInput

NESTED = b"[" * 50_000
FOREIGN = [
    *(b"5", b"{}", b"\xff", b"touch", NESTED),
    *(b"[null,null,null]", b'["r",["k"],"n"]', b'["r","no-such-kind","n"]'),
]


@pytest.mark.parametrize("key", FOREIGN)
def test_a_key_that_is_none_of_ours(key: bytes) -> None:
    rebuild = Rebuild(0, 1)
    rebuild.take(key, b"value")
    with pytest.raises(BadInput, match="is no record of the ledger"):
        rebuild.ledger()
    rebuild.take(key, None)
    assert rebuild.ledger().runs == {}


def test_a_key_of_ours() -> None:
    assert parse_key(key_of("r", "policy", 3)) == ("r", "policy", 3)
