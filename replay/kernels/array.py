"""What kernels know about arrays: any array of a library that follows the Python array API standard."""

from typing import Any

from array_api_compat import array_namespace, device

__all__ = ["Array", "constant", "device", "namespace", "sigmoid"]

Array = Any


def namespace(*arrays: Array) -> Any:
    """The array API namespace that all of `arrays` belong to; raises TypeError when they mix libraries."""
    return array_namespace(*arrays)


def sigmoid(values: Array) -> Array:
    """1 / (1 + e^-x). The library's own, where arrays have one: its gradient s (1 - s) is what trainers get, which in
    float32 is another number than the formula's where s is near 1."""
    own = getattr(values, "sigmoid", None)
    return 1 / (1 + namespace(values).exp(-values)) if own is None else own()


def constant(values: Array) -> Array:
    """`values` without their gradient, where the library has gradients: what a formula treats as a weight."""
    detach = getattr(values, "detach", None)
    return values if detach is None else detach()
