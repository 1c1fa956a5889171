"""The commands of broker, topics, processor and looking: options in, page and exit code out.

Options and their help only; `infra/mounts.py` lists all commands, and imports none before it is called.
"""
