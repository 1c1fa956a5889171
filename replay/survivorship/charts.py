"""The pictures of the page, drawn as SVG: bars and small histograms. Colours are the page's, by kind."""

from collections.abc import Mapping

from rollbook.replay.survivorship.fates import Kind
from rollbook.replay.survivorship.result import Rewards
from rollbook.replay.survivorship.text import real

_WIDTH, _HEIGHT = 160, 12
_TALL = 36


def single_bar(count: int, of: int, kind: Kind) -> str:
    """A share of all."""
    return _svg(_HEIGHT, _part(0.0, count, of, kind))


def share_bar(counts: Mapping[Kind, int], of: int) -> str:
    """All parts of something, one behind the other."""
    parts, at = [], 0
    for kind, count in counts.items():
        parts.append(_part(at, count, of, kind) if count else "")
        at += count
    return _svg(_HEIGHT, "".join(parts))


def histogram(found: Rewards, edges: tuple[float, ...], kind: Kind) -> str:
    """How many rewards lie in each bin; as high as its own highest, since the parts differ in size."""
    if not found.count:
        return ""
    highest, width = max(found.bins), _WIDTH / len(found.bins)
    parts = []
    for at, count in enumerate(found.bins):
        high = max(1.0, count / highest * (_TALL - 1)) if count else 0.0
        said = f"{count:,} from {real(edges[at])} to {real(edges[at + 1])}"
        parts.append(
            f"<rect class='k-{kind}' x='{at * width:.2f}' y='{_TALL - high:.2f}' width='{max(0.5, width - 1):.2f}' "
            f"height='{high:.2f}' data-figure='rewards.{found.part}.bins.{at}' data-value='{count}'>"
            f"<title>{said}</title></rect>"
        )
    base = f"<line class='base' x1='0' x2='{_WIDTH}' y1='{_TALL}' y2='{_TALL}'/>"
    return _svg(_TALL, "".join(parts) + base)


def _part(before: float, count: int, of: int, kind: Kind) -> str:
    """At least a hair where there is anything."""
    scale = _WIDTH / of if of else 0.0
    width = max(0.75, count * scale) if count else 0.0
    return f"<rect class='k-{kind}' x='{before * scale:.2f}' y='0' width='{width:.2f}' height='{_HEIGHT}'/>"


def _svg(height: int, content: str) -> str:
    return (
        f"<svg viewBox='0 0 {_WIDTH} {height}' width='{_WIDTH}' height='{height}' aria-hidden='true' "
        f"preserveAspectRatio='none'>{content}</svg>"
    )
