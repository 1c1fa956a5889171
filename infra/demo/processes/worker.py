"""A rollout worker as a process: it serves each new policy, generates groups, has them rewarded, and publishes it all.

    python -m rollbook.infra.demo.processes.worker FOLDER INDEX

It stands for any rollout system: everything the ledger asks of one is in the calls of `RolloutWorker` and
`RewardService` below.
"""

import hashlib
import inspect
from dataclasses import dataclass
from importlib.metadata import version as version_of

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.model import TinyTransformer, use_one_thread
from rollbook.infra.demo.learning.rollout import Response, sample_group
from rollbook.infra.demo.learning.task import reward_of
from rollbook.infra.demo.learning.weights import WeightsFile, load_weights
from rollbook.infra.demo.processes.assignments import Assignment, assignments_until
from rollbook.infra.demo.processes.ends import run_as_process
from rollbook.infra.demo.processes.faults import planned_faults
from rollbook.infra.demo.processes.folder import PATIENCE_S, Release, RunFolder
from rollbook.infra.demo.processes.journal import Attempt, Journal, Stage
from rollbook.producers import Reward, RewardService, RolloutWorker, SegmentArrays, new_id, new_identity
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.records.common import PolicyRef, TrajectoryIdentity
from rollbook.schemas.records.policy import AckFailure, EvidenceKind
from rollbook.schemas.records.reward import DiscardReason, RewardFailure
from rollbook.schemas.records.rollout import FinishReason, GenerationFailure, TaskSource
from rollbook.schemas.records.run import LogProbKind, RewardIdentity, Sampling

REWARD_RULE = RewardIdentity(
    rule_id="sorted-digits", version="1", hash=hashlib.sha256(inspect.getsource(reward_of).encode()).hexdigest()
)


@dataclass(frozen=True, slots=True)
class Generation:
    """A group that was generated, with None for a member that failed, until it is due."""

    assignment: Assignment
    attempt: Attempt
    responses: tuple[Response | None, ...]

    @property
    def members(self) -> list[tuple[TrajectoryIdentity, Response | None]]:
        return list(zip(self.attempt.identities, self.responses, strict=True))

    @property
    def is_whole(self) -> bool:
        return all(response is not None for response in self.responses)


class DemoWorker:
    """One worker's part of the run."""

    def __init__(
        self,
        index: int,
        workers: int,
        config: DemoConfig,
        journal: Journal,
        rollout: RolloutWorker,
        rewards: RewardService,
    ) -> None:
        self._index = index
        self._workers = workers
        self._config = config
        self._faults = planned_faults(config)
        self._journal = journal
        self._rollout = rollout
        self._rewards = rewards
        self._in_flight: list[Generation] = []
        self._contract_hash = rollout.register_contract(
            tokenizer="digits",
            template="plain",
            engine=f"rollbook-demo {version_of('rollbook')}",
            sampling=Sampling(
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                max_tokens=config.max_response_tokens,
                log_probs=LogProbKind.RAW,
                seed=config.seed,
            ),
            deterministic=True,
        )

    def run(self, folder: RunFolder) -> None:
        """Serve every policy up to the last one."""
        self.report_lost()
        version = -1
        iteration = -1
        while iteration < self._config.updates:
            release = folder.next_release(after=version)
            version, iteration = release.version, release.iteration
            model = self._serve(release.policy, folder)
            self.begin_again(release)
            self._publish_due(release)
            while self._generate(model, release):
                pass  # a failed group is generated once more

    def begin_again(self, release: Release) -> None:
        """After a roll-back what an undone policy wrote is of no use, published or not: it is begun again. So is
        what was due for the iteration that comes once more, since its rows come back in part only: those that
        drifted, were of an undone policy, or lie too far back do not."""
        begun = self._journal.at(Stage.BEGUN, Stage.PUBLISHING, Stage.PUBLISHED)
        undone = [attempt for attempt in begun if attempt.policy.version not in release.lineage]
        if not undone:
            return
        assigned = assignments_until(self._config, release.iteration, self._index, self._workers)
        due = {assignment.key for assignment in assigned if assignment.due_version == release.iteration}
        undone += [attempt for attempt in begun if attempt.stage is Stage.PUBLISHED and attempt.key in due]
        for attempt in undone:
            self._journal.note(attempt, Stage.UNDONE)
        gone = {identity.trajectory_id for attempt in undone for identity in attempt.identities}
        self._in_flight = [one for one in self._in_flight if one.attempt.identities[0].trajectory_id not in gone]

    def report_lost(self) -> None:
        """What an earlier incarnation had begun died with it: it will never come, and its groups must not wait."""
        for attempt in self._journal.at(Stage.BEGUN, Stage.PUBLISHING):
            for identity in attempt.identities:
                self._rollout.generation_failed(identity, attempt.policy, GenerationFailure.WORKER_LOST)
            if attempt.stage is Stage.PUBLISHING:
                # Members that had arrived refuse to fail; without the others they are of no use.
                self._discard(attempt, "a member was lost with its worker")
            self._journal.note(attempt, Stage.FAILED)

    def _serve(self, policy: PolicyRef, folder: RunFolder) -> TinyTransformer:
        """Load the announced weights and say so, or say why not. The hash of the file is the evidence."""
        file = WeightsFile(folder.weights(policy.version), policy.artifact_hash)
        try:
            model = load_weights(file, self._config)
        except EnvironmentFault:
            self._rollout.acknowledge_failure(AckFailure.LOAD_FAILED, text=f"version {policy.version}")
            raise
        self._rollout.acknowledge(policy, EvidenceKind.FILE_HASH)
        return model

    def _generate(self, model: TinyTransformer, release: Release) -> int:
        """Generate what is to be begun by now; publish at once what is due at once. Returns how many groups."""
        assigned = assignments_until(self._config, release.iteration, self._index, self._workers)
        wanted = [assignment for assignment in assigned if self._journal.needs(assignment.key)]
        for assignment in wanted:
            self._in_flight.append(self._sample(assignment, model, release.policy))
            self._publish_due(release)
        return len(wanted)

    def _sample(self, assignment: Assignment, model: TinyTransformer, policy: PolicyRef) -> Generation:
        number, group_id = self._journal.attempts(assignment.key), new_id()
        size = self._config.samples_per_prompt
        identities = tuple(new_identity(group_id, index, size) for index in range(size))
        attempt = Attempt(assignment.key, number, policy, identities)
        self._journal.note(attempt, Stage.BEGUN)
        row = assignment.prompt.row
        responses = sample_group(model, assignment.prompt, self._config, attempt=number)
        return Generation(
            assignment,
            attempt,
            tuple(
                None if assignment.is_training and self._faults.generation_fails(row, number, index) else response
                for index, response in enumerate(responses)
            ),
        )

    def _publish_due(self, release: Release) -> None:
        in_flight, self._in_flight = self._in_flight, []
        for generation in in_flight:
            if generation.assignment.due_version > release.iteration:
                self._in_flight.append(generation)
                continue
            self._journal.note(generation.attempt, Stage.PUBLISHING)
            self._publish(generation, release.version)
            if generation.is_whole:
                self._reward(generation)
            else:
                self._discard(generation.attempt, "a member was not generated")
                self._journal.note(generation.attempt, Stage.FAILED)
        self._settle()

    def _publish(self, generation: Generation, version: int) -> None:
        prompt, attempt = generation.assignment.prompt, generation.attempt
        for identity, response in generation.members:
            if response is None:
                self._rollout.generation_failed(identity, attempt.policy, GenerationFailure.ENGINE_ERROR)
                continue
            self._rollout.generated(
                identity,
                [SegmentArrays(prompt.ids, response.ids, response.log_probs, policy=attempt.policy)],
                task=TaskSource(
                    task_id=prompt.task_id, prompt_hash=prompt.prompt_hash, dataset=prompt.dataset, row=prompt.row
                ),
                contract_hash=self._contract_hash,
                finish_reason=FinishReason(response.finish_reason.value),
                rollout_partition_id=f"{self._rollout.worker_id}-{version}",
                purpose=generation.assignment.purpose,
            )

    def _reward(self, generation: Generation) -> None:
        """Judge a whole group. A reward that cannot be had is no reward of 0: the group goes without."""
        prompt, number = generation.assignment.prompt, generation.attempt.number
        rewards: list[Reward] = []
        for identity, response in generation.members:
            assert response is not None, "only whole groups are judged"
            is_training = generation.assignment.is_training
            if is_training and self._faults.reward_fails(prompt.row, number, identity.sample_index):
                self._rewards.failed(identity.trajectory_id, RewardFailure.SERVICE_ERROR, retriable=False)
                self._discard(generation.attempt, "a member has no reward")
                return
            rewards.append(Reward(identity.trajectory_id, reward_of(prompt, response.ids)))
        self._rewards.rewards(rewards, label_hash=prompt.label_hash)

    def _discard(self, attempt: Attempt, text: str) -> None:
        """Take a group out whole: GRPO needs all of it. Only what is on the log already can be discarded."""
        self._flush()
        ids = [identity.trajectory_id for identity in attempt.identities]
        self._rollout.discarded(ids, DiscardReason.CUSTOM, text=text)

    def _settle(self) -> None:
        """Once what was published has arrived, nobody need report it as lost."""
        publishing = self._journal.at(Stage.PUBLISHING)
        if publishing:
            self._flush()
        for attempt in publishing:
            self._journal.note(attempt, Stage.PUBLISHED)

    def _flush(self) -> None:
        for client in (self._rollout, self._rewards):
            if left := client.flush(PATIENCE_S):
                raise EnvironmentFault(f"{left} events did not reach the broker in {PATIENCE_S:.0f} s: see its log")


def main(folder: RunFolder, arguments: list[str]) -> None:
    use_one_thread()
    index = int(arguments[0])
    plan = folder.plan()
    worker_id = plan.workers[index]
    journal = Journal(folder.journal(worker_id))
    settings = folder.cluster()
    folder.next_release(after=-1)  # before the run is configured, which comes first, nobody is heard
    with (
        RolloutWorker(settings, plan.run_id, worker_id, keep_tokens=True) as rollout,
        RewardService(settings, plan.run_id, f"verifier-of-{worker_id}", REWARD_RULE) as rewards,
    ):
        DemoWorker(index, len(plan.workers), plan.config, journal, rollout, rewards).run(folder)
    journal.close()


if __name__ == "__main__":
    run_as_process(main)
