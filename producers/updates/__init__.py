"""An update from its claim to its commit, and what is recorded of its steps."""
