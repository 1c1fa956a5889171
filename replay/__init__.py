"""Bundles and the engine that recomputes them stage by stage."""
