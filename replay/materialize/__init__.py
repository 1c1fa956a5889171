"""From the log back to bundles: the updates committed in an offset range, one bundle per optimizer step."""
