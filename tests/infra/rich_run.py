"""A run in which nearly everything happened once, on the real broker, decided by a real host.

t0, t1    group g0, trained on by u0; t2 and t3 of the group failed (generation, reward)
t4        dropped by u0, then discarded; t5 of its group drifted
t6, t7    trained on by u1, which a restart from checkpoint c0 undid, with policy 2
t8        held by u2 of the second learner
t9        has a reward that waits for it; t10 was refused
"""

from rollbook.infra.settings import Settings
from rollbook.schemas.records.update import Checkpoint, Disposition
from rollbook.tests.processors.history import History
from rollbook.tests.processors.hosting import host_in_thread, send
from rollbook.tests.replay.trained_run import await_decided


def rich(run_id: str, partitions: int) -> History:
    """The run's records, folded."""
    history = History(run_id, topic_partitions=partitions).opened(workers=("w0",))
    history.learner("a", incarnation="first")
    for sample, name in ((0, "t0"), (1, "t1"), (3, "t3")):
        history.generated(name, group="g0", sample=sample, of=4)
    history.failed("t2", group="g0", sample=2, of=4)
    history.reward_failed("t3")
    history.rewarded("t0", reward=1.0)
    history.rewarded("t1", reward=0.5)
    history.rewarded("t9", reward=1.0)
    history.ready("t4", "t5", group="g1")
    history.claim("u0", 2, learner="a")
    history.admit("u0", {"t0": 0.0, "t1": 0.01, "t4": 0.0, "t5": 0.9}, learner="a")
    history.started("u0", learner="a")
    history.commit("u0", "t0", "t1", dropped={"t4": Disposition.RELEASE}, ranks=(0, 1), learner="a")
    history.sealed("u0", 0, learner="a")
    history.discarded("t4")
    history.ack("w0", 1)
    history.prepared(1, "u0", committed=False)
    history.written(1)
    history.activate(1)
    history.saved("c0", "u0", learner="a")
    history.ready("t6", "t7", group="g2")
    history.trained("u1", "t6", "t7", learner="a")
    history.prepared(2, "u1")
    fenced = history.epoch("a")
    history.learner("a", incarnation="second", checkpoint=Checkpoint(id="c0", digest="digest of c0"))
    history.commit("u1", "t6", "t7", learner="a", epoch=fenced)
    history.activate(2)
    history.learner("b", incarnation="other")
    history.ready("t8")
    history.reserve("u2", "t8", learner="b")
    history.generated("t10", contract="f" * 64)
    return history


def decide(settings: Settings, *histories: History) -> None:
    """Put the records on the broker and let a host decide them."""
    records = [(one.partition, one.key or b"", one.value or b"") for past in histories for one in past.log.records]
    send(settings, records)
    with host_in_thread(settings):
        for past in histories:
            await_decided(settings, past.log.partition)
