"""What kernels know about arrays: any array of a library that follows the Python array API standard."""

from typing import Any

from array_api_compat import array_namespace, device

__all__ = ["Array", "device", "namespace"]

Array = Any


def namespace(*arrays: Array) -> Any:
    """The array API namespace that all of `arrays` belong to; raises TypeError when they mix libraries."""
    return array_namespace(*arrays)
