"""What is committed, folded into figures. Pure."""
