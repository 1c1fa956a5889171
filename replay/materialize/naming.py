"""The names of bundles: derived from what they are, safe as one path component, different for different bundles."""

import hashlib
import re

_CLEAN = re.compile(r"[A-Za-z0-9._-]+")
_UNCLEAN = re.compile(r"[^A-Za-z0-9._-]")
_MAX_CLEAN = 128
_MAX_SHOWN = 48
_DIGEST_LENGTH = 16


def bundle_id_of(run_id: str, update_id: str, rollout_id: int, step_id: int | None) -> str:
    """`<run>-u<update>-r<rollout>-s<step>`, of an update without its step. Ids that do not fit into it as they are
    (other characters, too long, or such that another run and update would read the same) are shortened and followed by
    `~` and a digest of both; no clean name contains a `~`."""
    plain = f"{run_id}-u{update_id}"
    if _CLEAN.fullmatch(plain) is None or len(plain) > _MAX_CLEAN or "-u" in run_id or plain.startswith("."):
        digest = hashlib.sha256(f"{run_id}\0{update_id}".encode()).hexdigest()[:_DIGEST_LENGTH]
        plain = f"{_shown(run_id)}-u{_shown(update_id)}~{digest}"
    return f"{plain}-r{rollout_id}" if step_id is None else f"{plain}-r{rollout_id}-s{step_id}"


def _shown(name: str) -> str:
    return _UNCLEAN.sub("_", name[:_MAX_SHOWN]).lstrip(".")
