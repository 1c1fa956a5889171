"""Frames on a terminal, one after the other, on a screen of their own; and one frame alone."""

import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live

from rollbook.infra.watching.charts import ink_for
from rollbook.infra.watching.frame import frame
from rollbook.infra.watching.keys import Happened, Keys
from rollbook.infra.watching.seen import Seen

_SETTLE_S = 0.1
"""Between frames while a window is dragged."""


def show(console: Console, seen: Callable[[], Seen], interval_s: float) -> None:
    """Until q is pressed. A new size of the window has a frame at once."""
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        happened = Happened.NOTHING
        while happened is not Happened.QUIT:
            live.update(drawn(console, seen(), console.height, keys.hint), refresh=True)
            happened = keys.wait(interval_s)
            if happened is Happened.RESIZED:
                time.sleep(_SETTLE_S)
    keys.end_by_signal()


def drawn(console: Console, seen: Seen, height: int, hint: str = "") -> Group:
    """A frame that fits the console's width."""
    return Group(*frame(seen, console.width, height, ink_for(console.encoding), hint))
