"""The topics and who may do what with them: tables, and a cluster held against them.

A setting of a topic or a right of a role is a line in `table.py` or `acl_table.py`.
"""
