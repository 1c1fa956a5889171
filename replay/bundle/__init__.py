"""The bundle as a format: one optimizer step or rollout as files, its model and its parts.

Keys only grow, in a new format version (docs/BUNDLES.md); bundles that others wrote are read for ever.
"""
