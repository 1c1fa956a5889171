"""Our Adam is torch's."""

import torch

from rollbook.infra.demo.adam import Adam


def test_the_same_steps_as_torchs_own() -> None:
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(7, 3, generator=generator).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    adam, reference = Adam([ours], 1e-2, (0.9, 0.95)), torch.optim.Adam([theirs], lr=1e-2, betas=(0.9, 0.95))
    for step in range(20):
        gradient = torch.randn(7, 3, generator=generator) * 10**-step
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        adam.step()
        reference.step()
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    adam.zero_grad()
    adam.step()
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
