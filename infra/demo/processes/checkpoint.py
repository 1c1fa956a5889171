"""A trainer's checkpoints: weights and optimizer in a file, whose id and digest the ledger knows."""

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.learner import Learner
from rollbook.infra.demo.learning.weights import WeightsFile, load_tensors, load_weights, save_tensors
from rollbook.infra.demo.processes.folder import Release, RunFolder, SavedCheckpoint
from rollbook.producers import Trainer
from rollbook.schemas.records.update import Checkpoint


def save_checkpoint(trainer: Trainer, learner: Learner, release: Release, folder: RunFolder) -> None:
    """Write the file, have the ledger accept it, and only then make it the one to start from: what the ledger does not
    know it would refuse, and the one before is still good."""
    checkpoint_id = trainer.new_checkpoint_id()
    file = save_tensors(learner.state(), folder.checkpoint(checkpoint_id))
    trainer.checkpoint_saved(checkpoint_id, file.sha256, release.policy)
    folder.share_checkpoint(SavedCheckpoint(Checkpoint(id=checkpoint_id, digest=file.sha256), release))


def load_checkpoint(saved: SavedCheckpoint, folder: RunFolder, config: DemoConfig) -> Learner:
    """The learner as it was. The reference policy is the initial one."""
    initial = WeightsFile(folder.weights(0), folder.release(0).policy.artifact_hash)
    learner = Learner(load_weights(initial, config), config)
    learner.load_state(load_tensors(WeightsFile(folder.checkpoint(saved.checkpoint.id), saved.checkpoint.digest)))
    return learner
