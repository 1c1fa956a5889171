"""What replay found, for people and for programs."""
