"""Implementations of scaled dot-product attention; each has its own layout and its own way to give a mask."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench import eager
from bench.peers import load
from bench.prepared_call import FunctionAndArguments, torch_builder, with_gradients
from bench.task import Implementation, Inputs, Outputs, PreparedCall, Sizes
from regard import masks
from regard.attention import attend, plan

QKV = ("query", "key", "value")

Options = Callable[[Inputs], dict[str, Any]]
"""Inputs → the keywords of `regard.attend`."""

Keep = Callable[[Inputs], Tensor]
"""Inputs → a dense mask, bool, True: may attend; broadcastable to ``[batch, heads, queries, keys]``."""


def random_tensor(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal float32 numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make_inputs(sizes: Sizes) -> Inputs:
    """Query, key, value and the gradient of the output, for ``batch, heads, queries, keys, dim``."""
    B, H, Q, K, D = (sizes[name] for name in ("batch", "heads", "queries", "keys", "dim"))
    shapes = {"query": Q, "key": K, "value": K, "grad_output": Q}
    return {name: random_tensor(B, H, rows, D, seed=seed) for seed, (name, rows) in enumerate(shapes.items())}


def sizes(batch: int, heads: int, length: int, dim: int = 64) -> dict[str, int]:
    """Sizes of a self-attention."""
    return {"batch": batch, "heads": heads, "queries": length, "keys": length, "dim": dim}


def pairs(sizes: Sizes) -> int:
    """Pairs of query and key."""
    return sizes["batch"] * sizes["heads"] * sizes["queries"] * sizes["keys"]


def quadratic(matrices: float) -> Callable[[Sizes], float]:
    """Memory of ``matrices`` float32 matrices of scores."""
    return lambda sizes: 4.0 * matrices * pairs(sizes)


def regard(options: Options | None = None, gradients: tuple[str, ...] = ()) -> Implementation:
    """`regard.attend` with these options."""

    def chosen(inputs: Inputs) -> dict[str, Any]:
        return {} if options is None else options(inputs)

    def bind(inputs: Inputs) -> FunctionAndArguments:
        keywords = chosen(inputs)
        return (lambda *tensors: attend(*tensors, **keywords)), tuple(inputs[name] for name in QKV)

    def backend(inputs: Inputs) -> str:
        leaves = {name: inputs[name].detach().clone().requires_grad_() for name in gradients}
        given = {**inputs, **leaves}
        return plan(*(given[name] for name in QKV), **chosen(given)).backend

    return Implementation("regard", torch_builder(bind, gradients), backend=backend)


def plain(
    function: Callable[..., Any],
    names: tuple[str, ...] = QKV,
    gradients: tuple[str, ...] = (),
    *,
    keep: Keep | None = None,
    matrices: float = 2.0,
    compiled_matrices: float = 2.0,
    note: str = "",
) -> tuple[Implementation, Implementation]:
    """A function of plain PyTorch, as it is and compiled.

    Args:
        function: takes the named inputs, and a dense mask if ``keep`` is given.
        names: names of its inputs.
        gradients: names of the inputs whose gradients are computed.
        keep: makes the mask.
        matrices: matrices of scores that it stores at the same time; with gradients 2.5 times as many.
        compiled_matrices: the same for the compiled function.
        note: a note on both.
    """

    def bind(inputs: Inputs) -> FunctionAndArguments:
        mask = () if keep is None else (keep(inputs),)
        return function, (*(inputs[name] for name in names), *mask)

    more = 2.5 if gradients else 1.0
    return (
        Implementation("eager", torch_builder(bind, gradients), note=note, bytes=quadratic(more * matrices)),
        Implementation(
            "compile",
            torch_builder(bind, gradients, compiled=True),
            note=note,
            bytes=quadratic(more * compiled_matrices),
        ),
    )


def sdpa(
    gradients: tuple[str, ...] = (),
    *,
    keep: Keep | None = None,
    causal: bool = False,
    grouped: bool = False,
    note: str = "",
) -> Implementation:
    """`torch.nn.functional.scaled_dot_product_attention`; ``grouped``: heads may share keys and values."""

    def bind(inputs: Inputs) -> FunctionAndArguments:
        mask = None if keep is None else keep(inputs)

        def function(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, is_causal=causal, enable_gqa=grouped
            )

        return function, tuple(inputs[name] for name in QKV)

    return Implementation(
        "sdpa", torch_builder(bind, gradients), note=note, bytes=None if keep is None else quadratic(1.0)
    )  # fmt: skip


def keras(gradients: tuple[str, ...] = (), *, keep: Keep | None = None, note: str = "") -> Implementation:
    """`keras.layers.Attention` with scale 1/√dim. It has no heads, so they are a part of its batch."""

    def build(inputs: Inputs) -> PreparedCall:
        module = load("keras")
        folded = {name: _fold(inputs[name]) for name in (*QKV, "grad_output")}
        layer = module.layers.Attention(use_scale=True, score_mode="dot")
        layer.build([list(folded["query"].shape), list(folded["value"].shape), list(folded["key"].shape)])
        layer.scale.assign(folded["query"].shape[-1] ** -0.5)
        visible = None
        if keep is not None:
            B, H, _, K = inputs["query"].shape[:3] + inputs["key"].shape[2:3]
            visible = [None, keep(inputs).expand(B, H, 1, K).reshape(B * H, K)]
        leaves = {name: folded[name].clone().requires_grad_() for name in gradients}
        query, key, value = ({**folded, **leaves}[name] for name in QKV)

        def forward() -> Tensor:
            return layer([query, value, key], mask=visible)

        return _unfolded(forward, leaves, folded["grad_output"], inputs["query"].shape[:2])

    return Implementation("keras", build, note=note, bytes=quadratic(5.0 if gradients else 3.0))


def jax(
    gradients: tuple[str, ...] = (), *, keywords: Callable[[Inputs, Any], Mapping[str, Any]] | None = None,
    note: str = "",
) -> Implementation:  # fmt: skip
    """`jax.nn.dot_product_attention`, compiled for these shapes; its layout is ``[batch, length, heads, dim]``.

    Args:
        gradients: names of the inputs whose gradients are computed.
        keywords: makes its keywords from the inputs and `jax.numpy`.
        note: a note.
    """

    def build(inputs: Inputs) -> PreparedCall:
        module, jnp = load("jax"), load("jax", "jax.numpy")
        given = [jnp.asarray(inputs[name].transpose(1, 2).contiguous().numpy()) for name in (*QKV, "grad_output")]
        more = {} if keywords is None else keywords(inputs, jnp)

        def forward(query: Any, key: Any, value: Any) -> Any:
            return module.nn.dot_product_attention(query, key, value, **more)

        def backward(query: Any, key: Any, value: Any, grad_output: Any) -> Any:
            output, vjp = module.vjp(forward, query, key, value)
            return output, *vjp(grad_output)

        arguments = given if gradients else given[:3]
        compiled = module.jit(backward if gradients else forward).lower(*arguments).compile()

        def read(raw: Any) -> Outputs:
            arrays = raw if gradients else (raw,)
            names = ("output", *(f"gradient of {name}" for name in gradients))
            return {
                name: torch.from_numpy(_writable(array)).transpose(1, 2)
                for name, array in zip(names, arrays, strict=True)
            }

        return PreparedCall(lambda: module.block_until_ready(compiled(*arguments)), read)

    return Implementation("jax", build, note=note, bytes=quadratic(5.0 if gradients else 2.0))


def onnxruntime(*, keep: Keep | None = None, causal: bool = False, note: str = "") -> Implementation:
    """The operator ``Attention`` of ONNX (opset 23) on the CPU provider."""

    def build(inputs: Inputs) -> PreparedCall:
        runtime, onnx = load("onnxruntime"), load("onnxruntime", "onnx")
        names = ["query", "key", "value"] + ([] if keep is None else ["mask"])
        kinds = dict.fromkeys(QKV, onnx.TensorProto.FLOAT) | {"mask": onnx.TensorProto.BOOL}
        helper = onnx.helper
        graph = helper.make_graph(
            [helper.make_node("Attention", names, ["output"], is_causal=int(causal))],
            "attention",
            [helper.make_tensor_value_info(name, kinds[name], [None] * 4) for name in names],
            [helper.make_tensor_value_info("output", onnx.TensorProto.FLOAT, [None] * 4)],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        # Threads that spin would slow down the implementation that runs next.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = runtime.InferenceSession(
            model.SerializeToString(), sess_options=options, providers=["CPUExecutionProvider"]
        )
        feed = {name: inputs[name].numpy() for name in QKV}
        if keep is not None:
            mask, Q, K = keep(inputs), inputs["query"].shape[2], inputs["key"].shape[2]
            feed["mask"] = mask.expand(*mask.shape[:2], Q, K).contiguous().numpy()
        return PreparedCall(lambda: session.run(None, feed), lambda raw: {"output": torch.from_numpy(raw[0])})

    return Implementation("onnxruntime", build, note=note, bytes=quadratic(2.0))


def openvino(*, causal: bool = False, note: str = "") -> Implementation:
    """The operation ``ScaledDotProductAttention`` of OpenVINO on its CPU plugin, in the dtype of the inputs."""

    def build(inputs: Inputs) -> PreparedCall:
        module, operations = load("openvino"), load("openvino", "openvino.opset13")
        dtype = inputs["query"].dtype
        kind, name, bits = {
            torch.float32: (module.Type.f32, "f32", torch.int32),
            torch.bfloat16: (module.Type.bf16, "bf16", torch.int16),
            torch.float16: (module.Type.f16, "f16", torch.int16),
        }[dtype]
        parameters = [operations.parameter(list(inputs[each].shape), kind) for each in QKV]
        model = module.Model([operations.scaled_dot_product_attention(*parameters, causal=causal)], parameters)
        options = {
            "INFERENCE_PRECISION_HINT": name, "INFERENCE_NUM_THREADS": torch.get_num_threads(), "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY", "ENABLE_CPU_PINNING": False,
        }  # fmt: skip
        request = module.Core().compile_model(model, "CPU", options).create_infer_request()
        # NumPy has no bfloat16: the tensors share the memory of PyTorch's, as bits.
        shared = [inputs[each].contiguous().view(bits).numpy() for each in QKV]
        tensors = [module.Tensor(array, module.Shape(array.shape), kind) for array in shared]

        def read(raw: Any) -> Outputs:
            output = torch.from_numpy(_writable(next(iter(raw.values()))))
            return {
                "output": output.view(dtype) if output.dtype != dtype and output.itemsize == dtype.itemsize else output
            }

        return PreparedCall(lambda: request.infer(tensors, share_outputs=True), read)

    return Implementation("openvino", build, note=note, memory_measured=False)


def x_transformers(
    gradients: tuple[str, ...] = (), *, keep: Keep | None = None, causal: bool = False, note: str = "", **options: Any
) -> Implementation:
    """`x_transformers.attend.Attend`; with flash attention if there are no other options."""

    def bind(inputs: Inputs) -> FunctionAndArguments:
        module = load("x-transformers", "x_transformers.attend")
        attending = module.Attend(causal=causal, **(options or {"flash": True})).eval()
        mask = None if keep is None else keep(inputs)

        def function(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return attending(query, key, value, mask=mask)[0]

        return function, tuple(inputs[name] for name in QKV)

    needed = quadratic(3.0) if options or keep is not None else None
    return Implementation("x-transformers", torch_builder(bind, gradients), note=note, bytes=needed)


def all_implementations(gradients: tuple[str, ...] = (), *, causal: bool = False) -> tuple[Implementation, ...]:
    """All implementations of scaled dot-product attention."""
    keep = causal_keep if causal else None
    own = regard((lambda inputs: {"mask": masks.causal()}) if causal else None, gradients)
    forward_only = () if gradients else (onnxruntime(causal=causal), openvino(causal=causal))
    # Keras makes its causal mask from quadratic integer tensors, so it is not compared.
    unmasked = () if causal else (keras(gradients),)
    return (
        own,
        *plain(eager.attention, gradients=gradients, keep=keep),
        sdpa(gradients, causal=causal),
        *unmasked,
        jax(gradients, keywords=(lambda inputs, jnp: {"is_causal": True}) if causal else None),
        *forward_only,
        x_transformers(gradients, causal=causal),
    )


def causal_keep(inputs: Inputs) -> Tensor:
    """The dense causal mask."""
    Q, K = inputs["query"].shape[2], inputs["key"].shape[2]
    return torch.ones(Q, K, dtype=torch.bool).tril(K - Q)[None, None]


def _fold(tensor: Tensor) -> Tensor:
    return tensor.flatten(0, 1).contiguous()


def _unfolded(
    forward: Callable[[], Tensor], leaves: dict[str, Tensor], grad_output: Tensor, axes: torch.Size
) -> PreparedCall:
    def unfold(outputs: Outputs) -> Outputs:
        return {name: tensor.detach().unflatten(0, axes) for name, tensor in outputs.items()}

    if not leaves:
        return PreparedCall(forward, lambda raw: unfold({"output": raw}))
    call, read = with_gradients(forward, leaves, grad_output)
    return PreparedCall(call, lambda raw: unfold(read(raw)))


def _writable(array: Any) -> Any:
    import numpy as np

    return np.array(array)
