"""Change a bundle and seal it again: every checksum is right, so only what is wrong with the content can be found."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollbook.replay.bundle.tensorfile import parse_tensor, tensor_bytes, torch_dtype

FIXTURES = Path(__file__).parent.parent / "data" / "bundles-1.0.0"

Json = dict[str, Any]
JsonEdit = Callable[[Json], object]
Tensor = NDArray[Any]
PayloadEdit = Callable[[Tensor], Tensor | bytes]
BytesEdit = Callable[[bytes], bytes]


def edit_bundle(
    src: Path,
    dst: Path,
    *,
    manifest: JsonEdit | None = None,
    index: JsonEdit | None = None,
    expected: JsonEdit | None = None,
    payload: Mapping[str, PayloadEdit] | None = None,
    raw: Mapping[str, BytesEdit] | None = None,
    rank_complete: JsonEdit | None = None,
    complete: JsonEdit | None = None,
) -> Path:
    """Copy the bundle of one rank from `src` to `dst`, edited, with all checksums recomputed.

    Edits of JSON files change the parsed content in place (NaN and the like are written as they are). `payload` maps a
    name, also a new one, to a function from the old tensor (an empty one where there was none) to the new one, or to
    the bytes of its file. `raw` edits the bytes of a JSON file last; COMPLETE and COMPLETE.<rank> are edited after
    sealing.
    """
    shutil.copytree(src, dst)
    files = {"manifest.json": manifest, "index.json": index, "expected.json": expected}
    content = {name: json.loads((dst / name).read_text()) for name in files}
    for name, edit in (payload or {}).items():
        _edit_payload(dst, name, edit, content["manifest.json"])
    for name, change in files.items():
        if change is not None:
            change(content[name])
        _write(dst / name, content[name])
    for name, change_bytes in (raw or {}).items():
        (dst / name).write_bytes(change_bytes((dst / name).read_bytes()))
    _seal(dst, content["manifest.json"], rank_complete, complete)
    return dst


def _edit_payload(bundle: Path, name: str, edit: PayloadEdit, manifest: Json) -> None:
    path = bundle / "payloads" / f"{name}.pt"
    old = parse_tensor(path.read_bytes()).copy() if path.exists() else np.zeros(0, np.float32)
    new = edit(old)
    entry = manifest["payloads"].setdefault(name, {"name": name, "dtype": "torch.float32", "shape": [0]})
    if isinstance(new, bytes):
        data = new
    else:
        data = tensor_bytes(new, name)
        entry |= {"dtype": torch_dtype(new), "shape": list(new.shape)}
    path.write_bytes(data)
    entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _seal(bundle: Path, manifest: Json, rank_edit: JsonEdit | None, complete_edit: JsonEdit | None) -> None:
    digests = {
        name: hashlib.sha256((bundle / name).read_bytes()).hexdigest()
        for name in ("manifest.json", "index.json", "expected.json")
    }
    rank_file = next(bundle.glob("COMPLETE.*"))
    rank = json.loads(rank_file.read_text())
    rank["metadata"] = digests
    payloads = manifest.get("payloads")
    if isinstance(payloads, dict):
        rank["payloads"] = {name: entry.get("sha256") for name, entry in payloads.items()}
    complete = json.loads((bundle / "COMPLETE").read_text())
    complete["metadata"] = dict(digests)
    for record, edit in ((rank, rank_edit), (complete, complete_edit)):
        if edit is not None:
            edit(record)
    _write(rank_file, rank)
    _write(bundle / "COMPLETE", complete)


def _write(path: Path, content: Json) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
