"""A callback by the protocol of TRL's trainers: their base class would need transformers to be imported here."""

from typing import Any


class Callback:
    """Does nothing at every event that a subclass does not name."""

    def __getattr__(self, event: str) -> Any:
        if not event.startswith("on_"):
            raise AttributeError(event)
        return _ignore


def _ignore(*_: Any, **__: Any) -> None:
    return None
