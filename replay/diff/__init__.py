"""Two runs of the same tasks, held against each other."""
