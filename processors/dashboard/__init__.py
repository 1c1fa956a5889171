"""The dashboard: what is committed, folded into memory, and shown. It only reads."""
