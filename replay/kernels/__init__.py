"""The formulas of GRPO as pure functions over the Python array API: numpy offline, torch tensors inside a trainer.

Every kernel takes arrays of one library and returns arrays of it (`array_api_compat` finds the namespace). Formulas
and conventions are those of the bundle format's section on numerics.
"""
