"""The commands of the readers of decisions: options in, exit code out.

Options and their help only; what is done lies where it is imported from.
"""
