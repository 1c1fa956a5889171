"""A `.pt` file of one plain tensor, read and written without torch and without unpickling anything.

The pickle inside is a fixed short program (`_rebuild_tensor_v2` over a persistent id). It is read opcode by opcode
against that one shape; whatever differs, even harmlessly, is refused. Accepted is a contiguous tensor of a known dtype
that is the whole of its storage: so memory is bounded by the size of the file, and strides of 0, views and meta
tensors have no way in.
"""

import io
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollbook.replay.bundle.torchzip import MAX_STORAGE_BYTES, Entry, NotATensorFile, read_entries, write_entries
from rollbook.schemas.text import visible

Tensor = NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Kind:
    storage: str
    torch_name: str
    dtype: np.dtype[Any]


_KINDS = (
    _Kind("FloatStorage", "torch.float32", np.dtype("<f4")),
    _Kind("DoubleStorage", "torch.float64", np.dtype("<f8")),
    _Kind("HalfStorage", "torch.float16", np.dtype("<f2")),
    _Kind("LongStorage", "torch.int64", np.dtype("<i8")),
    _Kind("IntStorage", "torch.int32", np.dtype("<i4")),
    _Kind("ShortStorage", "torch.int16", np.dtype("<i2")),
    _Kind("CharStorage", "torch.int8", np.dtype("i1")),
    _Kind("ByteStorage", "torch.uint8", np.dtype("u1")),
)
_BY_STORAGE = {kind.storage: kind for kind in _KINDS}
_BY_DTYPE = {kind.dtype: kind for kind in _KINDS}
TORCH_DTYPES = frozenset(kind.torch_name for kind in _KINDS)

_REQUIRED = frozenset({"data.pkl", "data/0", "version"})
_KNOWN = _REQUIRED | {".format_version", ".storage_alignment", "byteorder", ".data/serialization_id"}
_MAX_PICKLE_BYTES = 4096
_MAX_DIMS = 8
_REBUILD = "torch._utils _rebuild_tensor_v2"


def torch_dtype(tensor: Tensor) -> str:
    """The name torch gives the tensor's dtype, e.g. "torch.float32"."""
    kind = _BY_DTYPE.get(tensor.dtype)
    if kind is None:
        raise NotATensorFile(f"dtype {tensor.dtype} is not one that payloads may have")
    return kind.torch_name


def parse_tensor(data: bytes) -> Tensor:
    """The tensor in the bytes of a `.pt` file, a read-only view into them.

    Raises `NotATensorFile` for anything but one contiguous, little-endian tensor of a known dtype.
    """
    contents = _contents(read_entries(data))
    header = _parse_program(bytes(contents["data.pkl"]))
    storage = contents["data/0"]
    if len(storage) != header.storage_numel * header.kind.dtype.itemsize:
        raise NotATensorFile(f"the storage has {len(storage)} bytes, its header says {header.storage_numel} elements")
    if header.offset != 0 or prod(header.shape) != header.storage_numel:
        raise NotATensorFile("a view into a larger storage; save tensor.clone()")
    if header.storage_numel and header.stride != _contiguous(header.shape):
        raise NotATensorFile(f"strides {header.stride} are not those of a contiguous tensor; save tensor.contiguous()")
    return np.frombuffer(storage, dtype=header.kind.dtype).reshape(header.shape)


def tensor_bytes(tensor: Tensor, name: str) -> bytes:
    """The bytes that `torch.save(tensor, "<name>.pt")` writes; the same tensor always gives the same bytes."""
    if tensor.ndim == 0:
        raise NotATensorFile("a scalar; payloads have at least one dimension")
    plain = np.ascontiguousarray(tensor)
    kind = _BY_DTYPE.get(plain.dtype)
    if kind is None:
        raise NotATensorFile(f"dtype {plain.dtype} is not one that payloads may have")
    if plain.nbytes >= MAX_STORAGE_BYTES:
        raise NotATensorFile("a storage of 4 GiB or more; split the step into several ranks")
    return write_entries(name, _program(kind, plain.shape), plain.tobytes())


def _contents(entries: Sequence[Entry]) -> dict[str, memoryview]:
    roots = {entry.name.partition("/")[0] for entry in entries}
    if len(roots) != 1:
        raise NotATensorFile("the zip entries do not share one root folder")
    contents = {entry.name.partition("/")[2]: entry.data for entry in entries}
    for leaf in contents.keys() - _KNOWN:
        raise NotATensorFile(f"zip entry '{visible(leaf)}' does not belong in a file of one tensor")
    for leaf in sorted(_REQUIRED - contents.keys()):
        raise NotATensorFile(f"zip entry '{leaf}' is missing")
    if "byteorder" in contents and bytes(contents["byteorder"]) != b"little":
        raise NotATensorFile("written on a big-endian machine; save it again on a little-endian one")
    if len(contents["data.pkl"]) > _MAX_PICKLE_BYTES:
        raise NotATensorFile("the pickle is longer than a plain tensor needs")
    return contents


@dataclass(frozen=True, slots=True)
class _Header:
    kind: _Kind
    storage_numel: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class _Program:
    """The opcodes of a pickle, taken one by one; memo writes are passed over since nothing may read the memo."""

    def __init__(self, pickle: bytes) -> None:
        opcodes = [(name, arg) for name, arg in _opcodes(pickle) if name not in ("BINPUT", "LONG_BINPUT")]
        self._left = opcodes[::-1]

    def take(self) -> tuple[str, Any]:
        return self._left.pop() if self._left else ("nothing", None)

    def expect(self, opcode: str, *args: object) -> Any:
        name, arg = self.take()
        if name != opcode or (args and arg not in args):
            raise NotATensorFile(f"not a plain tensor: pickle opcode {name} {visible(arg, 60)} where {opcode} belongs")
        return arg

    def size(self) -> int:
        name, arg = self.take()
        if name not in ("BININT", "BININT1", "BININT2", "LONG1") or not 0 <= arg < 2**48:
            raise NotATensorFile(f"not a plain tensor: pickle opcode {name} {visible(arg, 60)} where a size belongs")
        return int(arg)

    def sizes(self) -> tuple[int, ...]:
        marked = bool(self._left) and self._left[-1][0] == "MARK"
        if marked:
            self.take()
        found: list[int] = []
        while self._left and self._left[-1][0] not in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            found.append(self.size())
        end, _ = self.take()
        if not 1 <= len(found) <= _MAX_DIMS or end != ("TUPLE" if marked else f"TUPLE{len(found)}"):
            raise NotATensorFile(f"not a plain tensor of 1 to {_MAX_DIMS} dimensions")
        return tuple(found)


def _opcodes(pickle: bytes) -> Iterator[tuple[str, Any]]:
    """Each opcode with its argument. Only those that torch writes are known."""
    data = io.BytesIO(pickle)
    name = ""
    while name != "STOP":
        code = data.read(1)
        if code not in _OPCODES:
            raise NotATensorFile(f"not a plain tensor: pickle opcode {code!r}" if code else "the pickle is cut short")
        name, read = _OPCODES[code]
        try:
            argument = read(data)
        except (struct.error, ValueError) as error:
            raise NotATensorFile("the pickle is not well-formed") from error
        yield name, argument
    if data.tell() != len(pickle):
        raise NotATensorFile("bytes follow the end of the pickle")


def _no_argument(_: io.BytesIO) -> None:
    return None


def _integer_of(layout: str) -> Callable[[io.BytesIO], int]:
    size = struct.calcsize(layout)

    def read(data: io.BytesIO) -> int:
        found: int = struct.unpack(layout, data.read(size))[0]
        return found

    return read


def _long(data: io.BytesIO) -> int:
    (size,) = struct.unpack("<B", data.read(1))
    digits = data.read(size)
    if len(digits) != size:
        raise ValueError("cut short")
    return int.from_bytes(digits, "little", signed=True)


def _unicode(data: io.BytesIO) -> str:
    (size,) = struct.unpack("<I", data.read(4))
    text = data.read(size)
    if len(text) != size:
        raise ValueError("cut short")
    return text.decode()


def _names(data: io.BytesIO) -> str:
    lines = data.readline(), data.readline()
    if not all(line.endswith(b"\n") for line in lines):
        raise ValueError("cut short")
    return " ".join(line[:-1].decode("ascii") for line in lines)


_OPCODES: Mapping[bytes, tuple[str, Callable[[io.BytesIO], Any]]] = {
    b"\x80": ("PROTO", _integer_of("<B")),
    b"c": ("GLOBAL", _names),
    b"(": ("MARK", _no_argument),
    b"X": ("BINUNICODE", _unicode),
    b"Q": ("BINPERSID", _no_argument),
    b"J": ("BININT", _integer_of("<i")),
    b"K": ("BININT1", _integer_of("<B")),
    b"M": ("BININT2", _integer_of("<H")),
    b"\x8a": ("LONG1", _long),
    b"t": ("TUPLE", _no_argument),
    b"\x85": ("TUPLE1", _no_argument),
    b"\x86": ("TUPLE2", _no_argument),
    b"\x87": ("TUPLE3", _no_argument),
    b")": ("EMPTY_TUPLE", _no_argument),
    b"\x88": ("NEWTRUE", _no_argument),
    b"\x89": ("NEWFALSE", _no_argument),
    b"R": ("REDUCE", _no_argument),
    b"q": ("BINPUT", _integer_of("<B")),
    b"r": ("LONG_BINPUT", _integer_of("<I")),
    b".": ("STOP", _no_argument),
}


@lru_cache(maxsize=64)  # the tensors of a bundle are of few shapes, and so of few programs
def _parse_program(pickle: bytes) -> _Header:
    program = _Program(pickle)
    program.expect("PROTO", 2)
    program.expect("GLOBAL", _REBUILD)
    program.expect("MARK")
    program.expect("MARK")
    program.expect("BINUNICODE", "storage")
    kind = _storage_kind(program.expect("GLOBAL"))
    program.expect("BINUNICODE", "0")
    program.expect("BINUNICODE", "cpu")
    numel = program.size()
    program.expect("TUPLE")
    program.expect("BINPERSID")
    offset, shape, stride = program.size(), program.sizes(), program.sizes()
    requires_grad, _ = program.take()
    if requires_grad not in ("NEWFALSE", "NEWTRUE"):
        raise NotATensorFile("not a plain tensor: requires_grad is missing")
    program.expect("GLOBAL", "collections OrderedDict")
    for opcode in ("EMPTY_TUPLE", "REDUCE", "TUPLE", "REDUCE", "STOP", "nothing"):
        program.expect(opcode)
    return _Header(kind, numel, offset, shape, stride)


def _storage_kind(name: str) -> _Kind:
    module, _, storage = name.partition(" ")
    kind = _BY_STORAGE.get(storage) if module == "torch" else None
    if kind is None:
        known = ", ".join(sorted(TORCH_DTYPES))
        raise NotATensorFile(f"'{visible(name)}' is not the storage of a known dtype ({known})")
    return kind


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(max(size, 1) for size in shape[dim + 1 :]) for dim in range(len(shape)))


def _program(kind: _Kind, shape: tuple[int, ...]) -> bytes:
    memo = iter(range(256))

    def put(code: bytes) -> bytes:
        return code + b"q" + bytes([next(memo)])

    def sizes(values: tuple[int, ...]) -> bytes:
        body = b"".join(map(_integer, values))
        return body + b"\x85\x86\x87"[len(values) - 1 :][:1] if len(values) <= 3 else b"(" + body + b"t"

    def steps() -> Iterator[bytes]:
        yield b"\x80\x02" + put(b"ctorch._utils\n_rebuild_tensor_v2\n") + b"(("
        yield put(_text("storage")) + put(f"ctorch\n{kind.storage}\n".encode()) + put(_text("0")) + put(_text("cpu"))
        yield put(_integer(prod(shape)) + b"t") + b"Q" + _integer(0)
        yield put(sizes(shape)) + put(sizes(_contiguous(shape))) + b"\x89"
        yield put(b"ccollections\nOrderedDict\n") + put(b")R") + put(b"t") + put(b"R") + b"."

    return b"".join(steps())


def _text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def _integer(value: int) -> bytes:
    if value < 1 << 8:
        return b"K" + struct.pack("<B", value)
    if value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x05" + struct.pack("<q", value)[:5]
