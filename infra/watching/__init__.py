"""A live view of one run in a terminal. It only reads: committed records, without a group."""
