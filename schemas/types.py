"""The scalar types of the contract and the base of every record: frozen, strict, nothing extra."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import VERSION, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible
from rollbook.schemas.wording import ONE_LINE, RUN_NAME, SHA256, an, worded

MAX_ITEMS = 8192
"""The most items one command may name (DESIGN section 5, bounded state)."""

INT63_MAX = 2**63 - 1

Text = Annotated[str, StringConstraints(strict=True, max_length=4096)]
Id = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256, pattern=ONE_LINE)]
RunId = Annotated[str, StringConstraints(strict=True, pattern=RUN_NAME)]
Digest = Annotated[str, StringConstraints(strict=True, pattern=SHA256)]
"""A sha256 in lower-case hexadecimal."""
Bytes = Annotated[bytes, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=0, le=INT63_MAX)]
Positive = Annotated[int, Field(strict=True, ge=1, le=INT63_MAX)]
Flag = Annotated[bool, Field(strict=True)]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0.0)]
AboveZero = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0.0)]
Share = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0.0, le=1.0)]
PartialShare = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0.0, lt=1.0)]


_BUILDS_IN_ONE_THREAD = tuple(map(int, VERSION.split(".")[:2])) >= (2, 14)
"""Since pydantic 2.14 a model that is built at its first use is built once, whichever threads come first. Before, one
may check by its parent's rules meanwhile: there all are built at their import, which takes a tenth longer."""


_SEND_AGAIN = "correct the field and send the event again"


class ContractViolation(BadInput):
    """A value that the contract refuses in a record of a known type. `field` is its path: `items.0.raw_reward`."""

    def __init__(self, record_type: str, field: str, problem: str, remedy: str = _SEND_AGAIN) -> None:
        self.record_type = record_type
        self.field = field
        self.problem = problem
        super().__init__(f"{record_type}: field {visible(field)}: {problem}; {remedy}")


def called(value: Any) -> str:
    """A value's kind in an error, without its content."""
    kind = type(value)
    if value is None:
        return "None"
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return an(name)


def _unchanging(model: type[BaseModel], name: str) -> ContractViolation:
    return ContractViolation(
        model.__name__, name, "a record is never changed", "make another one with model_copy(update={...})"
    )


def violation(model: type[BaseModel], error: ValidationError) -> ContractViolation:
    """The first thing that pydantic found wrong, on one line."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(place) for place in first["loc"])
    problem = worded(first)
    if first["type"].endswith("_type"):  # its kind, and never its content
        problem = f"it is {called(first['input'])}, and {problem.removeprefix('it ')}"
    if first["type"] == "value_error" and ": " in problem:  # our own validators name the field first
        named, problem = problem.split(": ", 1)
        field = f"{field}.{named}" if field else named
    return ContractViolation(model.__name__, field or "record", problem)


class Part(BaseModel):
    """A record of the contract, or a part of one. Frozen; unknown fields and coerced scalars are refused by a
    `ContractViolation` that names the field."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=_BUILDS_IN_ONE_THREAD)

    if not TYPE_CHECKING:  # the types of the fields are those of the generated constructor

        def __init__(self, /, **fields):
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise violation(type(self), error) from None

        # Records inside a record are validated in place and not through this constructor, so that an error keeps its
        # whole path; pydantic looks for this mark.
        __init__.__pydantic_base_init__ = True

        def __setattr__(self, name, value):
            raise _unchanging(type(self), name)

        def __delattr__(self, name):
            raise _unchanging(type(self), name)

        def copy(self, *, update=None, deep=False):
            """pydantic's name of old for `model_copy`, which checked nothing."""
            return self.model_copy(update=update, deep=deep)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """The record with other values, checked as those of a new one are: pydantic's own checks neither names nor
        values. `deep` is as good as not, since nothing in a record changes. Raises ContractViolation."""
        if update is None:
            update = {}
        if not isinstance(update, Mapping) or not all(isinstance(name, str) for name in update):
            raise ContractViolation(type(self).__name__, "update", "it must be a dict of values by their fields' names")
        return type(self)(**{**vars(self), **update})

    @classmethod
    def trusted(cls, **fields: Any) -> Self:
        """A record of values that are known to be valid, all fields given: for hot paths, without validation."""
        raise NotImplementedError  # each model has its own

    def but(self, **changes: Any) -> Self:
        """The same record with other values, which are known to be valid."""
        raise NotImplementedError

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.trusted, cls.but = _makers(cls)  # type: ignore[method-assign]


P = TypeVar("P", bound=Part)
_SLOTS = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
_set_fields, _set_names, _set_extra, _set_private = (BaseModel.__dict__[slot].__set__ for slot in _SLOTS)
_new = object.__new__


def _makers(model: type[P]) -> tuple[Any, Any]:
    """`trusted` and `but` of a model, which put all that a pydantic model consists of straight into its slots: the
    ledger makes a dozen records a record, and one function for all models would take twice as long as one for each.

    Their records share one set of names, since a frozen one never changes which were given."""
    names = set(model.model_fields)

    def trusted(**fields: Any) -> P:
        made = _new(model)
        _set_fields(made, fields)
        _set_names(made, names)
        _set_extra(made, None)
        _set_private(made, None)
        return made

    def but(self: P, **changes: Any) -> P:
        made = _new(model)
        _set_fields(made, self.__dict__ | changes)
        _set_names(made, names)
        _set_extra(made, None)
        _set_private(made, None)
        return made

    return staticmethod(trusted), but


class NamedText(Part):
    """One named text."""

    name: Id = Field(description="Name, unique in its list.")
    value: Text = Field(description="Text.")


class NamedNumber(Part):
    """One named number."""

    name: Id = Field(description="Name, unique in its list.")
    value: Finite = Field(description="Number; finite.")
