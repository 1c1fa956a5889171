"""`rollbook doctor`: looks at a cluster and its runs, and says what is unsafe, each with its remedy."""
