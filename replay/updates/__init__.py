"""The updates that really happened, out of the log or an exported file: replayed one after the other."""
