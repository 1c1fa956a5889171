"""A client belongs to the process that made it: librdkafka's threads do not survive a fork."""

import ctypes
import os
import weakref

from rollbook.producers.errors import ForkedClient

_owners: "weakref.WeakSet[Ownership]" = weakref.WeakSet()


class Ownership:
    """Remembers the process that made a client, and the handles of librdkafka that a forked child must not destroy."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._pid = os.getpid()
        self._handles: list[object] = []
        _owners.add(self)

    def keep(self, handle: object) -> None:
        """Name a handle that the client holds."""
        self._handles.append(handle)

    @property
    def inherited(self) -> bool:
        """Whether this process is a forked child of the owner."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raises ForkedClient in a forked child."""
        if self.inherited:
            raise ForkedClient(
                f"the {self._client} was made in process {self._pid} and is used in its forked child {os.getpid()}: "
                "make a client of its own in each process, after the fork"
            )

    def make_immortal(self) -> None:
        """One reference too many to each handle, so that nothing ever destroys it in this process."""
        for handle in self._handles:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


def _after_fork() -> None:
    # Destroying a handle joins its threads, which exist only in the parent: the child would hang when it exits.
    for owner in list(_owners):
        owner.make_immortal()


os.register_at_fork(after_in_child=_after_fork)
