"""The page that was asked for, or none: pictures are taken only where somebody will see them."""

from dataclasses import dataclass, field
from pathlib import Path

from rollbook.replay.engine.engine import Watch
from rollbook.replay.html.figures import library
from rollbook.replay.html.page import Shown, spare, write_page
from rollbook.replay.html.pictures import Gallery


@dataclass(slots=True)
class Album:
    """The pictures of one or several bundles for the page at `path`; with None nothing is taken and nothing written.

    Raises `EnvironmentFault` at once where the plotting library is missing, and `BadInput` where the page would destroy
    something or cannot be, and not after the work.
    """

    path: Path | None
    galleries: list[Gallery] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.path is not None:
            library()
            spare(self.path)

    def watch(self) -> Watch | None:
        """What takes the pictures of the next bundle."""
        if self.path is None:
            return None
        self.galleries.append(Gallery())
        return self.galleries[-1].watch

    def write(self, *shown: Shown) -> None:
        """Write the page of the bundles that were watched, in their order."""
        if self.path is not None:
            write_page(self.path, shown, [gallery.pictures for gallery in self.galleries])
