"""Sizes that are out of the ordinary, each with its reason: a file above the limit that has none fails the tests."""

MOST_LINES = 400
REASONS = {
    "processors/host/loop.py": "the numbered steps of the host, which are read in one piece beside the design",
}
