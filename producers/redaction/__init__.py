"""What may leave the process in words, and what only as a hash."""
