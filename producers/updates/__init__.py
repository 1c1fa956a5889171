"""An update from its claim to its commit, and what is recorded of its steps.

The order of its calls is the protocol (docs/proof.md): a call more is a state more in `phase.py`.
"""
