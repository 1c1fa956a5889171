"""An independent recount of a run from its topics: confluent-kafka and fastavro only, nothing of rollbook imported.

It checks that every lifecycle record has exactly one decision, in order, with an unbroken chain, and counts what became
of each trajectory. Run it as a script to print the figures as JSON:

    python tests/recount.py --bootstrap 127.0.0.1:9092 --run my-run
"""

import argparse
import hashlib
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from fastavro.schema import fingerprint, to_parsing_canonical_form

AVRO = Path(__file__).resolve().parent.parent / "schemas" / "avro"
CHAIN_LENGTH = 66


@dataclass(frozen=True)
class Record:
    """A record as the topic has it."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None


def read_topic(bootstrap: str, topic: str) -> list[Record]:
    """All committed records of a topic, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "recount",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        places = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions]
        ends = {place.partition: consumer.get_watermark_offsets(place, timeout=10)[1] for place in places}
        consumer.assign(places)
        records = []
        while any(place.offset < ends[place.partition] for place in consumer.position(places) if ends[place.partition]):
            for message in [*consumer.consume(1, 0.2), *consumer.consume(5000, 0)]:
                assert message.error() is None, message.error()
                place: tuple[Any, Any, Any] = (message.partition(), message.offset(), message.key())
                records.append(Record(*place, message.value()))
        return sorted(records, key=lambda record: (record.partition, record.offset))
    finally:
        consumer.close()


class Codec:
    """Decodes single-object encoding with the schemas as they lie in the project."""

    def __init__(self) -> None:
        self._schemas: dict[bytes, Any] = {}
        for path in AVRO.rglob("*.avsc"):
            schema = json.loads(path.read_text(encoding="utf-8"))
            mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))
            self._schemas[mark] = (schema["name"], fastavro.parse_schema(schema))

    def decode(self, value: bytes) -> tuple[str, dict[str, Any]]:
        """The record's type and fields."""
        assert value[:2] == b"\xc3\x01", "not in single-object encoding"
        name, schema = self._schemas[value[2:10]]
        fields: Any = fastavro.schemaless_reader(io.BytesIO(value[10:]), schema, None)
        return name, fields


class Chains:
    """Checks decisions one by one, beside the records that they decide; remembers only where each run's chain ends."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._ends: dict[str, tuple[int, str]] = {}

    def check(self, source: Record, record: Record) -> dict[str, Any]:
        """The decision, which decides this record and continues its run's chain, or AssertionError."""
        value = record.value or b""
        name, decision = self._codec.decode(value)
        where = f"partition {source.partition} offset {source.offset}"
        assert name == "Decision", f"{where}: a {name} among the decisions"
        place = (decision["source"]["partition"], decision["source"]["offset"])
        assert place == (source.partition, source.offset), f"{where}: decided as {decision['source']}"
        sha256 = hashlib.sha256(source.value or b"").hexdigest()
        assert decision["source"]["sha256"] == sha256, f"{where}: another record was decided"
        assert record.key == decision["run_id"].encode(), f"{where}: wrong key"
        sequence, previous = self._ends.get(decision["run_id"], (0, "0" * 64))
        assert decision["sequence"] == sequence + 1, f"{where}: sequence {decision['sequence']} after {sequence}"
        link = hashlib.sha256(bytes.fromhex(previous) + bytes.fromhex(sha256) + value[:-CHAIN_LENGTH]).hexdigest()
        assert decision["chain"] == link, f"{where}: the chain is broken"
        self._ends[decision["run_id"]] = (decision["sequence"], link)
        return decision


def check_decisions(lifecycle: list[Record], decisions: list[Record], codec: Codec) -> dict[str, int]:
    """Exactly one decision a record, in order, chained per run; raises AssertionError naming the first that is not."""
    by_partition: dict[int, list[Record]] = defaultdict(list)
    for record in decisions:
        by_partition[record.partition].append(record)
    chains = Chains(codec)
    counts: Counter[str] = Counter()
    for partition in sorted({record.partition for record in lifecycle}):
        sources = [record for record in lifecycle if record.partition == partition]
        decided = by_partition[partition]
        assert len(decided) == len(sources), f"partition {partition}: {len(sources)} records, {len(decided)} decisions"
        for source, record in zip(sources, decided, strict=True):
            counts[chains.check(source, record)["outcome"]] += 1
    assert sum(map(len, by_partition.values())) == len(lifecycle), "decisions in a partition without records"
    return dict(counts)


_TERMINAL = {"consumed", "generation_failed", "discarded", "quarantined", "offline"}


@dataclass
class Lineage:
    """What mass changes do to trajectories, worked out from records. A decision names the first hundred only, but its
    digest over all ids says whether what is worked out is what the processor did."""

    state: dict[str, str]
    live: dict[str, str]
    updates: dict[str, str]
    spans: dict[str, set[int]] = field(default_factory=dict)
    places: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    trained_by: dict[str, list[str]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    orphaned: set[int] = field(default_factory=set)
    floor: int = 0
    rolled_back: list[dict[str, Any]] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def commit(self, update_id: str, items: list[dict[str, Any]]) -> None:
        """An update stands: what it trained on, no other that stands trained on."""
        self.trained_by[update_id] = [item["trajectory_id"] for item in items if item["reason"] == "trained"]

    def trained_twice(self) -> int:
        """How many trajectories two of the updates that stand trained on."""
        times = Counter(name for names in self.trained_by.values() for name in names)
        return sum(count > 1 for count in times.values())

    def change(self, kind: str, changes: list[dict[str, Any]]) -> None:
        """Apply the mass changes of one decision."""
        said = {change["predicate"]: change for change in changes}
        if kind == "Activate":
            self._raise_floor(said)
        elif kind == "LearnerStarted":
            self._start_anew(said)

    def _raise_floor(self, said: dict[str, Any]) -> None:
        floors = [int(digits) for predicate in said for digits in re.findall(r"below version (\d+) ", predicate)]
        if not floors:
            return
        self.floor = max(floors)
        below = {
            name
            for name, spans in self.spans.items()
            if min(spans) < self.floor and name not in self.gone and self.state[name] != "reserved"
        }
        ended = {name for name in below if self.state[name] in _TERMINAL}
        self._agree(said, f"trajectories below version {self.floor} offline", below - ended)
        self.state.update(dict.fromkeys(below - ended, "offline"))
        before = set(self.gone)
        for name in sorted(ended):
            if not self._is_missed(name):
                self.gone.add(name)
        self._agree(said, f"trajectories below version {self.floor} forgotten", self.gone - before)

    def _is_missed(self, name: str) -> bool:
        """Whether its group lives on, and would lack its place."""
        group, place, expected = self.places[name]
        known = [one for one, (of, _, _) in self.places.items() if of == group and one != name and one not in self.gone]
        left = {self.places[one][1] for one in known}
        alive = any(self.state[one] not in _TERMINAL for one in known)
        return alive and place not in left and len(left) < expected

    def _start_anew(self, said: dict[str, Any]) -> None:
        undone, aborted, orphaned = (
            self._named(said, what) for what in ("updates rolled back", "updates aborted", "policies orphaned")
        )
        self.orphaned |= set(map(int, orphaned))
        rows = [name for update_id in undone for name in self.trained_by.pop(update_id)]
        back = [name for name in rows if name not in self.gone]
        self._agree(said, "trajectories rolled back", back)
        forgotten = said.get("trajectories rolled back, but forgotten", {"count": 0})["count"]
        assert forgotten == len(rows) - len(back), f"{forgotten} said to be forgotten, not {len(rows) - len(back)}"
        released = [name for name, update_id in self.live.items() if update_id in aborted]
        self._agree(said, "trajectories released", released)
        for name in (*back, *released):
            self.live.pop(name, None)
            stale = "offline" if name in back and min(self.spans[name]) < self.floor else "rewarded"
            self.state[name] = "quarantined" if self._tainted(name) else stale
        waiting = ("dispatched", "generated", "reward_failed", "rewarded")
        others = [name for name, state in self.state.items() if state in waiting and self._tainted(name)]
        self._agree(said, "trajectories quarantined with an orphaned policy", others)
        self.state.update(dict.fromkeys(others, "quarantined"))
        self.state.update({name: "forgotten" for name in rows if name in self.gone})
        self.updates.update({**dict.fromkeys(undone, "rolled_back"), **dict.fromkeys(aborted, "aborted")})
        if undone:
            became = dict(sorted(Counter(self.state[name] for name in rows).items()))
            policies = sorted(map(int, orphaned))
            self.rolled_back.append({"updates": len(undone), "policies": policies, "rows": len(rows), "became": became})
            self.rows.append(rows)

    def _tainted(self, name: str) -> bool:
        return bool(self.spans.get(name, set()) & self.orphaned)

    @staticmethod
    def _named(said: dict[str, Any], predicate: str) -> list[str]:
        change = said.get(predicate, {"count": 0, "first_ids": []})
        assert change["count"] == len(change["first_ids"]), f"{predicate}: more than the decision names"
        return list(change["first_ids"])

    @staticmethod
    def _agree(said: dict[str, Any], predicate: str, names: Iterable[str]) -> None:
        ids = sorted(names)
        change = said.get(predicate, {"count": 0})
        assert change["count"] == len(ids), f"{predicate}: the decision says {change['count']}, counted {len(ids)}"
        if ids:
            digest = hashlib.sha256("\n".join(ids).encode()).hexdigest()
            assert change["digest"] == digest, f"{predicate}: others than those counted"


def figures(run_id: str, lifecycle: list[Record], decisions: list[Record], codec: Codec) -> dict[str, Any]:
    """What became of the run's trajectories and updates, counted from records and decisions alone."""
    sources = {(record.partition, record.offset): record for record in lifecycle}
    state: dict[str, str] = {}
    version: dict[str, int] = {}
    rewards: dict[str, float] = {}
    purpose: dict[str, str] = {}
    updates: dict[str, str] = {}
    live: dict[str, str] = {}
    lineage = Lineage(state, live, updates)
    admitted: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    freshness: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    steps: dict[str, int] = {}
    activated = []
    outcomes: Counter[str] = Counter()
    for record in decisions:
        _, decision = codec.decode(record.value or b"")
        if decision["run_id"] != run_id:
            continue
        kind, outcome = decision["record_type"], decision["outcome"]
        outcomes[f"{kind} {outcome}"] += 1
        source = sources[(decision["source"]["partition"], decision["source"]["offset"])]
        body = codec.decode(source.value or b"")[1] if outcome not in ("undecodable", "invalid") else {}
        if outcome == "accepted" and kind in ("Generated", "GenerationFailed"):
            name = body["identity"]["trajectory_id"]
            purpose[name] = body.get("purpose", "train")
            place = body["identity"]
            lineage.places[name] = (place["group_id"], place["sample_index"], place["group_expected"])
            if kind == "GenerationFailed":
                lineage.spans[name] = {body["policy"]["version"]}
            if kind == "Generated":
                refs = [span["policy"] for segment in body["segments"] for span in segment["spans"] if span["policy"]]
                lineage.spans[name] = {ref["version"] for ref in refs}
                version[name] = min(lineage.spans[name])
        if kind == "RewardReady" and outcome in ("accepted", "pending"):
            rewards.update({item["trajectory_id"]: item["raw_reward"] for item in body["items"]})
        if kind in ("GenerationFailed", "RewardFailed") and outcome in ("accepted", "pending"):
            failures[f"{kind} {body['reason']}"] += 1
        if kind == "Commit" and outcome == "accepted":
            steps[decision["update_id"]] = len(body["steps"])
            lineage.commit(decision["update_id"], decision["items"])
        if outcome == "duplicate":
            continue
        for item in decision["items"]:
            name, reason = item["trajectory_id"], item["reason"]
            if item["state_after"] is not None:
                state[name] = item["state_after"]
            if reason == "reserved":
                assert name not in live, f"{name} is reserved twice: {live[name]} and {decision['update_id']}"
                live[name] = decision["update_id"]
            if item["state_before"] == "reserved" and item["state_after"] != "reserved":
                live.pop(name, None)
            if kind == "Admit":
                (admitted if reason == "ok" else refused)[f"{reason} lag {item['lag']}"] += 1
                if reason == "ok":
                    freshness[item["freshness"]] += 1
            if kind == "Reserve" and reason not in ("reserved", "idempotent_retry"):
                refused[f"{reason} lag {item['lag']}"] += 1
        if outcome == "accepted" and kind in ("Reserve", "UpdateStarted", "Commit", "Abort"):
            ends = {"Reserve": "open", "UpdateStarted": "started", "Commit": "committed", "Abort": "aborted"}
            updates[decision["update_id"]] = ends[kind]
        if outcome == "accepted" and kind == "Activate":
            activated.append(body["policy"]["version"])
        lineage.change(kind, decision["mass_changes"])
    by_version: dict[int, list[float]] = defaultdict(list)
    evals: dict[int, list[float]] = defaultdict(list)
    for name, reward in rewards.items():
        if name in version:
            (evals if purpose[name] == "eval" else by_version)[version[name]].append(reward)
    return {
        "run": run_id,
        "trajectories": dict(sorted(Counter(state.values()).items())),
        "failures": dict(sorted(failures.items())),
        "updates": dict(sorted(Counter(updates.values()).items())),
        "steps": sum(count for name, count in steps.items() if updates[name] == "committed"),
        "trained_twice": lineage.trained_twice(),
        "rolled_back": [
            {**counts, "now": dict(sorted(Counter(state[name] for name in rows).items()))}
            for counts, rows in zip(lineage.rolled_back, lineage.rows, strict=True)
        ],
        "admitted": dict(sorted(admitted.items())),
        "refused": dict(sorted(refused.items())),
        "freshness": dict(sorted(freshness.items())),
        "activated": activated,
        "reward_by_version": {str(v): round(sum(r) / len(r), 6) for v, r in sorted(by_version.items())},
        "eval_by_version": {str(v): round(sum(r) / len(r), 6) for v, r in sorted(evals.items())},
        "outcomes": dict(sorted(outcomes.items())),
    }


def main() -> None:
    """Print the figures of a run as JSON, after checking its decisions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", default="rollbook.")
    parser.add_argument("--run", required=True)
    asked = parser.parse_args()
    lifecycle = read_topic(asked.bootstrap, f"{asked.prefix}lifecycle")
    decisions = read_topic(asked.bootstrap, f"{asked.prefix}decisions")
    codec = Codec()
    counts = check_decisions(lifecycle, decisions, codec)
    print(json.dumps({"decisions": counts, **figures(asked.run, lifecycle, decisions, codec)}, indent=2))


if __name__ == "__main__":
    main()
