"""Adam (Kingma and Ba 2015), written out: making a torch.optim optimizer imports a compiler for several seconds."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

_EPSILON = 1e-8


class Adam:
    """Steps the parameters by their `.grad`; the caller clears the gradients with `zero_grad`."""

    def __init__(self, parameters: Iterable[Tensor], learning_rate: float, betas: tuple[float, float]) -> None:
        self.learning_rate = learning_rate
        self._betas = betas
        self._parameters = list(parameters)
        self._means = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._steps = 0

    def state(self) -> dict[str, Tensor]:
        """What `load_state` needs to go on as if nothing had happened."""
        moments = {"mean": self._means, "square": self._squares}
        named = {f"{name}.{i}": one for name, tensors in moments.items() for i, one in enumerate(tensors)}
        return {**named, "steps": torch.tensor(self._steps)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a `state` of an optimizer of the same parameters."""
        for name, tensors in (("mean", self._means), ("square", self._squares)):
            for i, tensor in enumerate(tensors):
                tensor.copy_(state[f"{name}.{i}"])
        self._steps = int(state["steps"])

    def zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One step; a parameter without a gradient stays as it is."""
        self._steps += 1
        first, second = self._betas
        scale = self.learning_rate / (1 - first**self._steps)
        correction = 1 - second**self._steps
        for parameter, mean, square in zip(self._parameters, self._means, self._squares, strict=True):
            if parameter.grad is not None:
                mean.lerp_(parameter.grad, 1 - first)
                square.lerp_(parameter.grad.square(), 1 - second)
                parameter.sub_(scale * mean / ((square / correction).sqrt() + _EPSILON))
