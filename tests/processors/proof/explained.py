"""Mutants that nobody can tell from the rules, each with the reason."""

EXPLAINED: dict[str, str] = {}
