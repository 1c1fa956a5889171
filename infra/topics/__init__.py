"""The topics and who may do what with them: tables, and the cluster held against them."""
