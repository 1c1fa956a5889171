"""From the log back to bundles: the updates committed in an offset range, one bundle per optimizer step.

Only what a decision vouches for goes into a bundle; contradictions are told, not resolved.
"""
