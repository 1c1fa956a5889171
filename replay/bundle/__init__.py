"""The bundle: one optimizer step or rollout as files, read strictly and written atomically."""
