"""Products outside of autograd are the same by either library, and slow ways are not taken."""

import pytest
import torch

from regard.kernels import availability
from regard.nn import matrix_products
from regard.nn.matrix_products import add_grad_weight, grad_input, grad_weight, product, product_dtype


@pytest.fixture(params=["blas", "onednn", "microkernel"], autouse=True)
def _library(request, monkeypatch):
    if request.param == "microkernel" and availability.why_missing() is not None:
        pytest.skip("kernels are compiled by Numba")
    if request.param == "onednn" and not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(matrix_products, "_is_faster", lambda: request.param == "onednn")
    monkeypatch.setattr(matrix_products, "microkernel_is_faster", lambda: request.param == "microkernel")
    for name in ("LARGE", "MANY_ROWS"):
        monkeypatch.setattr(matrix_products, name, 1)


@pytest.mark.parametrize("rows", [0, 1, 15, 16, 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("gaps", [False, True])
def test_products_are_exact(rows, dtype, gaps):
    inputs, gradient = torch.randn(rows, 19, dtype=dtype), torch.randn(rows, 23, dtype=dtype)
    weight, vector, matrix = (torch.randn(*size, dtype=dtype) for size in ((23, 40), (23,), (rows, 23)))
    weight = weight[:, 3:22] if gaps else weight[:, 3:22].contiguous()
    near = {"atol": {torch.bfloat16: 0.2, torch.float32: 1e-4, torch.float64: 1e-12}[dtype], "rtol": 0}
    wanted = inputs.double() @ weight.double().t()
    for added in (None, vector, matrix):
        before = None if added is None else added.clone()
        found = product(inputs, weight, added)
        torch.testing.assert_close(found.double(), wanted + (0 if added is None else added.double()), **near)
        assert added is None or torch.equal(added, before)
    found = product(inputs, weight, matrix.clone(), reuses=True)
    torch.testing.assert_close(found.double(), wanted + matrix.double(), **near)
    torch.testing.assert_close(grad_input(gradient, weight).double(), gradient.double() @ weight.double(), **near)
    found = grad_weight(gradient, inputs)
    torch.testing.assert_close(found.double(), gradient.double().t() @ inputs.double(), **near)
    total = found.clone()
    add_grad_weight(total, gradient, inputs)
    torch.testing.assert_close(total.double(), 2 * gradient.double().t() @ inputs.double(), **near)


@pytest.mark.parametrize(("features", "outputs"), [(0, 3), (3, 0)])
def test_empty_products_are_zeros(features, outputs):
    inputs, weight, added = torch.randn(20, features), torch.randn(outputs, features), torch.randn(20, outputs)
    assert torch.equal(product(inputs, weight), torch.zeros(20, outputs))
    assert torch.equal(product(inputs, weight, added), added)
    assert torch.equal(grad_input(added, weight), torch.zeros(20, features))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_autocast_changes_no_product(dtype):
    inputs, weight, added = (torch.randn(*size, dtype=dtype) for size in ((20, 8), (9, 8), (20, 9)))
    calls = (
        lambda: product(inputs, weight),
        lambda: product(inputs, weight, added[0]),
        lambda: product(inputs, weight, added),
        lambda: product(inputs, weight, added.clone(), reuses=True),
        lambda: grad_input(added, weight),
        lambda: grad_weight(added, inputs),
    )
    wanted = [call() for call in calls]
    with torch.autocast("cpu", torch.bfloat16):
        found = [call() for call in calls]
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_the_dtype_of_products_is_the_one_that_is_wanted(dtype):
    assert product_dtype(dtype, torch.device("cpu")) == dtype


def test_bfloat16_without_instructions_is_float32_on_cpus(processor):
    found = product_dtype(torch.bfloat16, torch.device("cpu"))
    assert found == (torch.float32 if processor.startswith("no") else torch.bfloat16)
    assert product_dtype(torch.bfloat16, torch.device("cuda")) == torch.bfloat16


def test_a_compiler_is_left_alone():
    def both(inputs, weight):
        return grad_input(product(inputs, weight), weight)

    inputs, weight = torch.randn(20, 5), torch.randn(7, 5)
    compiled = torch.compile(both, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(inputs, weight), both(inputs, weight))


@pytest.mark.parametrize("what", ["gaps", "few rows", "float64", "subclass"])
def test_what_onednn_is_slow_or_unable_for_is_not_given_to_it(monkeypatch, what):
    class Refusing:
        @staticmethod
        def _linear_pointwise(*_):
            raise AssertionError("given to oneDNN")

    monkeypatch.setattr(matrix_products, "_OPERATORS", Refusing)
    inputs, weight = torch.randn(2 if what == "few rows" else 32, 8), torch.randn(4, 16)
    weight = weight[:, ::2] if what == "gaps" else weight[:, :8].contiguous()
    if what == "float64":
        inputs, weight = inputs.double(), weight.double()
    elif what == "subclass":
        inputs = torch.nn.Parameter(inputs, requires_grad=False)
    torch.testing.assert_close(product(inputs, weight), inputs @ weight.t())
    if what != "subclass":
        torch.testing.assert_close(grad_input(inputs @ weight.t(), weight), inputs @ weight.t() @ weight)


@pytest.mark.parametrize("shape", [(), (1,), (1, 5), (20, 1), (1, 1)], ids=str)
def test_what_is_broadcast_is_left_to_pytorch(shape):
    inputs, weight, added = torch.randn(20, 3), torch.randn(5, 3), torch.randn(shape)
    torch.testing.assert_close(product(inputs, weight, added), inputs @ weight.t() + added)


@pytest.mark.parametrize("shape", [(4,), (20, 4), (19, 5), (3, 20, 5)], ids=str)
def test_what_does_not_fit_is_an_error(shape):
    with pytest.raises(RuntimeError):
        product(torch.randn(20, 3), torch.randn(5, 3), torch.ones(shape))
