"""Tests, recorded histories and benchmarks."""
