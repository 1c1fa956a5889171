"""The `.pt` file: what torch writes is read, what we write torch loads, and nothing else is a tensor."""

import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rollbook.replay.bundle.tensorfile import parse_tensor, tensor_bytes
from rollbook.replay.bundle.torchzip import NotATensorFile
from rollbook.tests.locked import is_locked
from rollbook.tests.replay.reseal import FIXTURES

SHAPES = [(1,), (5,), (300,), (70_000,), (0,), (2, 3), (2, 3, 4), (2, 1, 3, 2, 2)]
DTYPES = ["f4", "f8", "f2", "i8", "i4", "i2", "i1", "u1"]


def saved(tensor: Any, path: Path) -> bytes:
    torch.save(tensor, path)
    return path.read_bytes()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_both_ways(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    array = (np.arange(np.prod(shape)) % 100).astype(dtype).reshape(shape)
    ours = tensor_bytes(array, "kl")
    (tmp_path / "ours.pt").write_bytes(ours)
    for mmap in (False, True):
        loaded = torch.load(tmp_path / "ours.pt", weights_only=True, mmap=mmap)
        assert np.array_equal(loaded.numpy(), array)
        assert loaded.numpy().dtype == array.dtype
    theirs = saved(torch.tensor(array), tmp_path / "kl.pt")
    assert np.array_equal(parse_tensor(theirs), array)
    # Torch is of two minds about the stride of nothing, and older ones wrote another version of zip's.
    assert ours == theirs or array.size == 0 or not is_locked("torch")


@pytest.mark.parametrize(
    "path", sorted(FIXTURES.glob("full-*/payloads/*.pt")), ids=lambda path: "/".join(path.parts[-3:])
)
def test_the_fixtures_come_out_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    tensor = parse_tensor(data)
    assert np.array_equal(tensor, torch.load(path, weights_only=True).numpy())
    assert tensor_bytes(tensor, path.stem) == data


NOT_PLAIN: list[tuple[str, Callable[[], Any], str]] = [
    ("a view", lambda: torch.arange(10.0)[2:5], "view into a larger storage"),
    ("a transposed tensor", lambda: torch.arange(6.0).reshape(2, 3).T, "strides"),
    ("an expanded tensor", lambda: torch.zeros(1).expand(10**9), "view into a larger storage"),
    ("a scalar", lambda: torch.tensor(1.0), "where a size belongs"),
    ("a meta tensor", lambda: torch.zeros(10**9, device="meta"), "'data/0' is missing"),
    ("a sparse tensor", lambda: torch.eye(3).to_sparse(), "zip entry 'data/1' does not belong"),
    ("a complex tensor", lambda: torch.zeros(3, dtype=torch.complex64), "known dtype"),
    ("a parameter", lambda: torch.nn.Parameter(torch.zeros(3)), "not a plain tensor"),
    ("a dictionary", lambda: {"kl": torch.zeros(3)}, "not a plain tensor"),
    ("a list", lambda: [torch.zeros(3), torch.zeros(3)], "data/1"),
    ("a module", lambda: torch.nn.Linear(2, 2), "data/1"),
    ("a number", lambda: 5, "zip entry 'data/0' is missing"),
]


@pytest.mark.parametrize(("what", "make", "why"), NOT_PLAIN, ids=[case[0] for case in NOT_PLAIN])
def test_only_plain_tensors(tmp_path: Path, what: str, make: Callable[[], Any], why: str) -> None:
    data = saved(make(), tmp_path / "x.pt")
    with pytest.raises(NotATensorFile, match=why):
        parse_tensor(data)


def archive(program: bytes, storage: bytes = bytes(12), **entries: bytes) -> bytes:
    """A zip as `zipfile` writes it, with these entries."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as zipped:
        for name, content in {"data.pkl": program, "data/0": storage, "version": b"3\n", **entries}.items():
            zipped.writestr(f"x/{name}", content)
    return out.getvalue()


def number(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


def numbers(values: tuple[Any, ...]) -> bytes:
    body = b"".join(map(number, values))
    return body + bytes([0x84 + len(values)]) if 1 <= len(values) <= 3 else b"(" + body + b"t"


def program(
    *, storage: str = "FloatStorage", numel: int = 3, offset: int = 0, size: Any = (3,), stride: Any = (1,)
) -> bytes:
    """The pickle that torch writes for a tensor, without its memo, and with whatever numbers."""
    reference = b"X\x07\0\0\0storagectorch\n" + storage.encode() + b"\nX\1\0\0\x000X\3\0\0\0cpu" + number(numel)
    arguments = number(offset) + numbers(size) + numbers(stride) + b"\x89ccollections\nOrderedDict\n)R"
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((" + reference + b"tQ" + arguments + b"tR."


def test_the_program_helper_writes_what_torch_reads() -> None:
    loaded = torch.load(io.BytesIO(archive(program())), weights_only=True)
    assert loaded.tolist() == [0, 0, 0]
    assert parse_tensor(archive(program())).tolist() == [0, 0, 0]


HOSTILE: list[tuple[str, bytes, str]] = [
    ("stride 0", archive(program(stride=(0,))), "strides"),
    ("size beyond storage", archive(program(size=(2**40,))), "view into a larger storage"),
    ("storage beyond file", archive(program(numel=2**40, size=(2**40,))), "the storage has 12 bytes"),
    ("negative size", archive(program(size=(-3,))), "where a size belongs"),
    ("negative offset", archive(program(offset=-1)), "where a size belongs"),
    ("boolean size", archive(program(size=(True,), numel=1)), "TUPLE|size"),
    ("no dimensions", archive(program(size=(), stride=())), "dimensions|not a plain tensor"),
    ("nine dimensions", archive(program(size=(1,) * 9, stride=(1,) * 9)), "dimensions"),
    ("unknown storage", archive(program(storage="QInt8Storage")), "known dtype"),
    ("a class of another module", archive(program().replace(b"ctorch\nFloat", b"cposix\nFloat")), "known dtype"),
    ("a call", archive(b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R."), "where GLOBAL belongs"),
    ("a pickle cut short", archive(program()[:-1]), "cut short"),
    ("bytes after the pickle", archive(program() + b"."), "follow the end"),
    ("a vast pickle", archive(b"\x80\x02" + b"N" * 5000 + b"."), "longer than"),
    ("no pickle", archive(b""), "cut short"),
    ("big-endian", archive(program(), byteorder=b"big"), "big-endian"),
    ("a TorchScript archive", archive(program(), **{"constants.pkl": b"."}), "'constants.pkl' does not belong"),
    ("no zip", b"\x80\x02]q\x00.", "shorter than"),
    ("empty", b"", "shorter than"),
    ("a zip of nothing", b"PK\x05\x06" + bytes(18), "0 zip entries"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "data", "why"), HOSTILE, ids=[case[0] for case in HOSTILE])
def test_hostile(what: str, data: bytes, why: str) -> None:
    with pytest.raises(NotATensorFile, match=why):
        parse_tensor(data)


def test_a_compressed_entry_is_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("x/data.pkl", program(numel=2**20, size=(2**20,)))
        zipped.writestr("x/data/0", bytes(2**22))
        zipped.writestr("x/version", b"3\n")
    with pytest.raises(NotATensorFile, match="compressed"):
        parse_tensor(out.getvalue())


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_entry_twice_is_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as zipped:
        zipped.writestr("x/data/0", bytes(12))
        zipped.writestr("x/data/0", b"\1" * 12)
    with pytest.raises(NotATensorFile, match="two zip entries of one name"):
        parse_tensor(out.getvalue())


def test_nothing_is_copied() -> None:
    """A file is read where it lies: what is taken besides is less than any part of its values."""
    data = tensor_bytes(np.zeros(1 << 18, np.float32), "kl")
    parse_tensor(data)
    tracemalloc.start()
    try:
        parse_tensor(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(data) // 16


def test_every_cut_is_noticed() -> None:
    data = tensor_bytes(np.arange(3, dtype=np.float32), "x")
    for length in range(len(data)):
        with pytest.raises(NotATensorFile):
            parse_tensor(data[:length])


def test_a_flipped_bit_in_the_values_is_noticed() -> None:
    data = bytearray(tensor_bytes(np.arange(3, dtype=np.float32), "x"))
    data[data.index(struct.pack("<f", 2.0))] ^= 1
    with pytest.raises(NotATensorFile, match="checksum"):
        parse_tensor(bytes(data))
