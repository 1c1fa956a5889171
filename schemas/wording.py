"""What a check found wrong with a value, in the words of this project: pydantic's own speak of inputs and patterns."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

ONE_LINE = r"^[^\x00-\x1f\x7f]+$"
RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$"
SHA256 = r"^[0-9a-f]{64}$"
_PATTERNS = {
    ONE_LINE: "it must be on one line, without control characters",
    RUN_NAME: "it must be 1 to 128 letters, digits and . _ : / -, of which the first is a letter or a digit",
    SHA256: "it must be a sha256, 64 hexadecimal digits in lower case",
}
_KINDS = {
    "string_type": "a str",
    "int_type": "an int",
    "float_type": "a float",
    "bool_type": "a bool",
    "bytes_type": "bytes",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a dict",
    "mapping_type": "a dict",
}
_WORDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "missing": lambda _: "it is missing",
    "extra_forbidden": lambda _: "there is no such field",
    "finite_number": lambda _: "it must be finite",
    "int_parsing_size": lambda _: "it has too many digits",
    "greater_than_equal": lambda told: f"it must be {_number(told['ge'])} or more",
    "greater_than": lambda told: f"it must be above {_number(told['gt'])}",
    "less_than_equal": lambda told: f"it must be {_number(told['le'])} or less",
    "less_than": lambda told: f"it must be below {_number(told['lt'])}",
    "string_too_short": lambda told: _too_short(told, "characters"),
    "string_too_long": lambda told: f"it must have at most {told['max_length']} characters",
    "string_unicode": lambda _: "it must be text that UTF-8 can hold",
    "string_pattern_mismatch": lambda told: _PATTERNS.get(told["pattern"], f"it must match {told['pattern']}"),
    "too_short": lambda told: _too_short(told, "items"),
    "too_long": lambda told: f"it must have at most {told['max_length']} items",
    "enum": lambda told: f"it must be {told['expected']}",
    "literal_error": lambda told: f"it must be {told['expected']}",
    "none_required": lambda _: "it must be left out",
    "json_invalid": lambda told: f"it is no JSON ({told['error']})",
}


def worded(found: "ErrorDetails") -> str:
    """One of the things that pydantic found wrong, without the value."""
    kind, told = found["type"], found.get("ctx", {})
    if kind == "value_error":  # a validator of ours
        return str(told["error"]) if "error" in told else found["msg"].removeprefix("Value error, ")
    if kind == "model_type":
        return f"it must be {an(told['class_name'])}"
    if kind in _KINDS:
        return f"it must be {_KINDS[kind]}"
    if kind in _WORDS:
        return _WORDS[kind](told)
    return found["msg"][:1].lower() + found["msg"][1:]


def an(name: str) -> str:
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _too_short(told: Mapping[str, Any], of: str) -> str:
    least = told["min_length"]
    return "it is empty" if least == 1 else f"it must have at least {least} {of}"
