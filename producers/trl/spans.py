"""Who wrote which tokens of a completion: TRL's tool mask as spans. Pure."""

from itertools import pairwise

import numpy as np

from rollbook.schemas.digests import Mask
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.rollout import Origin, Span


def spans_of(action_mask: Mask, policy: PolicyRef) -> tuple[Span, ...]:
    """Spans that cover the completion: the policy's where the mask is set, a tool's elsewhere."""
    if not len(action_mask):
        return ()
    changes = np.flatnonzero(np.diff(action_mask.astype(np.int8))) + 1
    bounds = [0, *changes.tolist(), len(action_mask)]
    return tuple(
        Span(
            start=start,
            end=end,
            origin=Origin.MODEL if action_mask[start] else Origin.TOOL,
            policy=policy if action_mask[start] else None,
        )
        for start, end in pairwise(bounds)
    )
