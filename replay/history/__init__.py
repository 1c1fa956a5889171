"""Reading the log: offset ranges, the sources that records come from, and decisions by the record they decide."""
