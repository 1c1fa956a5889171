"""The commands of history, audit and replay: options in, report and exit code out."""
