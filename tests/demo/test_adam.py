"""Our Adam is torch's: the numbers are those of `torch.optim.Adam`, whose import alone takes longer than all this.

They came of `torch.optim.Adam([parameter], lr=1e-2, betas=(0.9, 0.95))` with the gradients below, torch 2.15.
"""

import torch

from rollbook.infra.demo.learning.adam import Adam

START = [0.5, -1.25, 2.0, 0.0]
GRADIENTS = [[0.3, -2.0, 1e-4, 5.0], [-0.1, 1.5, 2e-4, -5.0], [0.7, 0.25, -3e-5, 1e-3]]
STEPS = [
    [0.49000001, -1.24000001, 1.99000096, -0.00999999978],
    [0.485956937, -1.23910356, 1.98042166, -0.00947368424],
    [0.478980929, -1.23905182, 1.97384596, -0.00906249601],
]


def test_the_same_steps_as_torchs_own() -> None:
    parameter = torch.tensor(START, requires_grad=True)
    adam = Adam([parameter], 1e-2, (0.9, 0.95))
    for gradient, expected in zip(GRADIENTS, STEPS, strict=True):
        parameter.grad = torch.tensor(gradient)
        adam.step()
        torch.testing.assert_close(parameter.detach(), torch.tensor(expected), atol=1e-7, rtol=1e-6)


def test_without_a_gradient_a_parameter_stays() -> None:
    parameter = torch.tensor(START, requires_grad=True)
    adam = Adam([parameter], 1e-2, (0.9, 0.95))
    parameter.grad = torch.ones(4)
    adam.zero_grad()
    adam.step()
    assert parameter.tolist() == START
