"""RunConfigured and GenerationContract: what a run is and what it may cite."""

from rollbook.processors.ledger.matrix import ContractPhase, RunPhase, StateOf, row, row_of_run
from rollbook.processors.ledger.store import Run
from rollbook.processors.ledger.verdict import At, Verdict, subject
from rollbook.processors.reasons import Reason
from rollbook.schemas.digests import contract_hash
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.ledger import ContractState, PolicyState, RunConfig
from rollbook.schemas.records.run import GenerationContract, RunConfigured


def refuse(run: Run, record_type: str) -> Verdict | None:
    """The answer to a record that meets its run before its first configuration, or after its end."""
    found = row_of_run(record_type, _phase(run))
    return None if found.outcome is Outcome.ACCEPTED else Verdict(found.outcome, found.reason)


def _phase(run: Run) -> RunPhase | None:
    if run.head.closed:
        return RunPhase.CLOSED
    return RunPhase.OPEN if run.head.config_version else None


def run_configured(run: Run, record: RunConfigured, at: At, topic_partitions: int) -> Verdict:
    """Open the run, or change its limits; what never changes is compared."""
    about = subject("run", run.run_id)
    known = run.configs.get(record.config_version)
    if known is not None:
        same = known.content == at.content
        outcome = Outcome.DUPLICATE if same else Outcome.REJECTED
        return Verdict(outcome, Reason.DUPLICATE if same else Reason.CONFLICT, subject=about)
    refusal = _refusal(run, record, topic_partitions)
    if refusal is not None:
        return Verdict(Outcome.REJECTED, refusal, subject=about)
    first = run.head.config_version == 0
    run.configs.put(record.config_version, _config(record, at))
    run.change_head(config_version=record.config_version, fold_version=record.fold_version)
    if first:
        initial = record.initial_policy
        run.policies.put(
            initial.version,
            PolicyState(
                version=initial.version,
                artifact=initial.artifact,
                content=at.content,
                source_version=None,
                update_ids=(),
                depth=0,
                ordinal=0,
                committed=True,
                activated=True,
            ),
        )
        run.change_head(active=PolicyRef(version=initial.version, artifact_hash=initial.artifact.hash))
    return Verdict(Outcome.ACCEPTED, Reason.OK, subject=about)


def _refusal(run: Run, record: RunConfigured, topic_partitions: int) -> Reason | None:
    if record.partition_count != topic_partitions:
        return Reason.PARTITION_COUNT_CHANGED
    head = run.head
    if head.config_version == 0:
        return None
    if record.config_version <= head.config_version:
        return Reason.CONFIG_VERSION_NOT_RISING
    if record.fold_version < head.fold_version:
        return Reason.FOLD_VERSION_FALLS
    if record.enforcement is not run.config.enforcement:
        return Reason.ENFORCEMENT_CHANGED
    initial = run.policies.get(record.initial_policy.version)
    if initial is None or initial.source_version is not None or initial.artifact != record.initial_policy.artifact:
        return Reason.INITIAL_POLICY_CHANGED
    return None


def _config(record: RunConfigured, at: At) -> RunConfig:
    return RunConfig(
        config_version=record.config_version,
        fold_version=record.fold_version,
        content=at.content,
        partition_count=record.partition_count,
        enforcement=record.enforcement,
        admission=record.admission,
        required_workers=record.required_workers,
        pinned_contracts=record.pinned_contracts,
        pinned_rewards=record.pinned_rewards,
        unpinned=record.unpinned,
        horizon=record.horizon,
        lease_ms=record.lease_ms,
        max_live=record.max_live,
        max_pending=record.max_pending,
    )


def generation_contract(run: Run, record: GenerationContract, at: At) -> Verdict:
    """Register the conditions of generation under their hash."""
    about = subject("contract", record.contract_hash)
    wanted = contract_hash(
        tokenizer=record.tokenizer,
        template=record.template,
        engine=record.engine,
        sampling=record.sampling,
        deterministic=record.deterministic,
    )
    if record.contract_hash != wanted:
        return Verdict(Outcome.REJECTED, Reason.CONTRACT_HASH_MISMATCH, detail=f"expected {wanted}", subject=about)
    known = ContractPhase.KNOWN if record.contract_hash in run.contracts else None
    found = row(StateOf.CONTRACT, "GenerationContract", known)
    if found.outcome is not Outcome.ACCEPTED:
        return Verdict(found.outcome, found.reason, subject=about)
    run.contracts.put(
        record.contract_hash,
        ContractState(contract_hash=record.contract_hash, content=at.content, offset=at.offset),
    )
    return Verdict(found.outcome, found.reason, subject=about)
