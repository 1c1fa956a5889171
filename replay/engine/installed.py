"""A trainer's own function, installed beside rollbook: found by name, identified by its file, called on copies.

This executes foreign code, so nothing here runs unless somebody names a function. Whatever it does wrong becomes one
line with its name: how it is found, what it raises, what it prints, what it returns.
"""

import hashlib
import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from io import TextIOBase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollbook.replay.bundle.model import StageId
from rollbook.replay.engine.result import InstalledCode
from rollbook.replay.engine.selection import stage_of
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

Values = NDArray[Any]
_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_SPEC = re.compile(rf"^(?:(?P<stage>[^=]*)=)?(?P<module>{_DOTTED}):(?P<function>{_DOTTED})$")
_NUMBERS = "biuf"
_ADAPTS = "adapts"


@dataclass(frozen=True, slots=True)
class InstalledKernel:
    """A function to run beside the kernel of `stage`; `stage` is None where only its arguments can tell it. `code` is
    what was found installed, `adapts` the function that it names as the one it calls."""

    stage: StageId | None
    name: str
    function: Callable[..., Any]
    code: InstalledCode
    adapts: InstalledCode | None = None

    @property
    def shown(self) -> str:
        return visible(self.name)

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter] | None:
        """Its parameters by name; None where Python cannot tell."""
        try:
            return inspect.signature(self.function).parameters
        except (TypeError, ValueError):
            return None


def installed(spec: str) -> InstalledKernel:
    """Import what `[STAGE=]PACKAGE:FUNCTION` names. Raises `BadInput` for what it does not find, or cannot import."""
    match = _SPEC.match(spec)
    if match is None:
        raise BadInput(
            f"--kernel '{visible(spec)}' is no function: give [STAGE=]PACKAGE:FUNCTION, for example "
            "advantage.kl=my_trainer.losses:kl"
        )
    stage = None if match["stage"] is None else stage_of(match["stage"])
    name = f"{match['module']}:{match['function']}"
    found = _found(name, _imported(name, match["module"]), match["function"])
    if not callable(found):
        raise BadInput(f"kernel {visible(name)} is no function but {_kind(found)}: name a function")
    with _contained(name, "cannot be looked at"):
        adapted = getattr(found, _ADAPTS, None)
        code, adapts = _code_of(found, name), _code_of(adapted, None) if callable(adapted) else None
    return InstalledKernel(stage, name, found, code, adapts)


def _imported(name: str, module: str) -> Any:
    try:
        with _quiet():
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise BadInput(
                f"kernel {visible(name)}: no module '{visible(error.name)}' is installed; install it, or add its "
                "folder to PYTHONPATH"
            ) from None
        raise BadInput(_raised(name, "cannot be imported", error)) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise BadInput(_raised(name, "cannot be imported", error)) from None


def _found(name: str, module: Any, path: str) -> Any:
    found = module
    for part in path.split("."):
        with _contained(name, "cannot be looked at"):
            found = getattr(found, part, None)
        if found is None:
            raise BadInput(f"kernel {visible(name)}: {visible(module.__name__)} has no '{visible(path)}'; correct it")
    return found


def _code_of(function: Any, name: str | None) -> InstalledCode:
    """Where a function is defined, which need not be where it was named. Of a class or a callable object: its class."""
    plain = inspect.unwrap(function)
    if not hasattr(plain, "__qualname__"):
        plain = type(plain)
    module = str(getattr(plain, "__module__", None) or "")
    package, installed_version = _package_of(module.partition(".")[0])
    file = getattr(sys.modules.get(module), "__file__", None)
    digest = ""
    with suppress(OSError, TypeError):
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
    defined = f"{module}:{plain.__qualname__}"
    return InstalledCode(
        name=name or defined,
        defined=defined,
        package=package,
        version=installed_version,
        file=Path(file).name if file else "",
        sha256=digest,
    )


def _package_of(top: str) -> tuple[str, str]:
    """The distribution that a top-level module belongs to, and its version; empty for what is not installed as one."""
    for name in packages_distributions().get(top, (top,)):
        with suppress(PackageNotFoundError, ValueError):
            return name, version(name)
    return "", ""


def call(kernel: InstalledKernel, inputs: Mapping[str, object]) -> dict[str, Values]:
    """What the function makes of the inputs that it asks for: arrays by name, "" for a single one that has none.

    It gets copies, so nothing that it does to them reaches what comes after. Raises `BadInput`.
    """
    given = {
        key: value.copy() if isinstance(value, np.ndarray) else value for key, value in _asked(kernel, inputs).items()
    }
    with _contained(kernel.name, "failed"), _quiet(), np.errstate(all="ignore"):
        answer = kernel.function(**given)
        found = dict(answer) if isinstance(answer, Mapping) else {"": answer}
        arrays = {key: _array(value) for key, value in found.items()}
    for key, values in arrays.items():
        what = f"'{visible(key)}'" if key else "its answer"
        if not isinstance(key, str):
            raise BadInput(f"kernel {kernel.shown} returned a dict whose keys are no names: use the outputs' names")
        if values is None or values.dtype.kind not in _NUMBERS:
            kind = _kind(found[key]) if values is None else f"an array of {values.dtype}"
            raise BadInput(
                f"kernel {kernel.shown} returned {kind} for {what}: return an array of numbers, or a dict of arrays"
            )
    return {key: values for key, values in arrays.items() if values is not None}


def _asked(kernel: InstalledKernel, inputs: Mapping[str, object]) -> Mapping[str, object]:
    parameters = kernel.parameters
    if parameters is None or any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        named = inputs
    else:
        named = {name: value for name, value in inputs.items() if name in parameters}
    lacking = [name for name in required(kernel) if name not in inputs]
    if lacking:
        raise BadInput(
            f"kernel {kernel.shown} asks for {visible(', '.join(lacking))}, which the stage does not have in this "
            f"bundle: it has {', '.join(inputs)}; adapt it by a function of these"
        )
    return named


def required(kernel: InstalledKernel) -> Iterator[str]:
    """The arguments that it cannot do without."""
    for name, one in (kernel.parameters or {}).items():
        if one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
            yield name


def _array(value: Any) -> Values | None:
    """As numpy has it, a tensor of torch without its gradient and in double; None for what is no array of numbers."""
    if value is None or isinstance(value, str | bytes | tuple | set):
        return None
    if hasattr(value, "detach"):
        value = value.detach().cpu().double().numpy()
    return np.array(value)


@contextmanager
def _contained(name: str, what: str) -> Iterator[None]:
    """Whatever foreign code raises, as one line: also what is meant to end a process, but not who presses Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise BadInput(_raised(name, what, error)) from None


def _raised(name: str, what: str, error: BaseException) -> str:
    try:
        said = visible(str(error).strip())
    except Exception:
        said = ""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {visible(Path(frames[-1].filename).name)}:{frames[-1].lineno}" if frames else ""
    return f"kernel {visible(name)} {what}: {type(error).__name__}{where}{': ' if said else ''}{said}"


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {visible(type(value).__name__)}"


class _Nowhere(TextIOBase):
    """Takes any text and keeps none: what is printed may have no end."""

    def write(self, text: str) -> int:
        return len(text)


@contextmanager
def _quiet() -> Iterator[None]:
    """Standard output belongs to the report, which programs read: what foreign code prints there is dropped, also what
    it prints past Python."""
    with redirect_stdout(_Nowhere()), Path(os.devnull).open("wb") as nowhere:
        try:
            sys.__stdout__.flush() if sys.__stdout__ else None
            own = os.dup(1)
        except (OSError, ValueError):
            yield
            return
        os.dup2(nowhere.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(own, 1)
            os.close(own)
