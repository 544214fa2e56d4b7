"""Training in float16: a fused optimizer with clipped gradients takes the steps of one that is not fused."""

import pytest
import torch

from regard.training.precision import ScaledPrecision


def trained(fused, overflows):
    """The weights after three steps, in the second of which the gradient may be infinite, and the last scale."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
    precision = ScaledPrecision("16-mixed", device="cpu")
    precision.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for step in range(3):
        inputs = torch.full((2, 4), torch.inf if overflows and step == 1 else step + 1.0)
        with precision.forward_context():
            loss = model(inputs).float().square().mean()
        precision.backward(loss, None)
        precision.unscale_gradients(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        precision.optimizer_step(optimizer)
        optimizer.zero_grad()
    return model.weight.detach(), precision.scaler.get_scale()


@pytest.mark.parametrize("overflows", [False, True])
def test_a_fused_optimizer_takes_the_same_steps(overflows):
    weights, scale = trained(True, overflows)
    expected, expected_scale = trained(False, overflows)
    torch.testing.assert_close(weights, expected)
    assert scale == expected_scale == (128.0 if overflows else 256.0)
    assert weights.isfinite().all()
