"""What may leave the process in words, and what only as a hash.

Strict by default: what is new here is hashed until a policy says otherwise.
"""
