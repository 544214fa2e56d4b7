"""Implementations that run on one named backend of regard; they show whether the planner's choice is right."""

from bench.columns import OWN_COLUMNS
from bench.inner_product import QKV, Options
from bench.prepared_call import FunctionAndArguments, torch_builder
from bench.task import Implementation, Inputs
from regard.attention import attend
from regard.attention.verbs import BackendName


def own_backends(*backends: BackendName, options: Options | None = None) -> tuple[Implementation, ...]:
    """`regard.attend` on each of these backends, in the columns ``regard-reference`` and so on.

    Their memory is not measured: regard's own column has the memory of the backend that `auto` chooses.

    Args:
        backends: names of the backends; if one cannot run the task, its cell has the reason.
        options: inputs → the keywords of `regard.attend`.
    """

    def implementation(backend: BackendName) -> Implementation:
        def bind(inputs: Inputs) -> FunctionAndArguments:
            keywords = {} if options is None else options(inputs)
            return (lambda *tensors: attend(*tensors, **keywords, backend=backend)), tuple(inputs[n] for n in QKV)

        return Implementation(
            OWN_COLUMNS[backend], torch_builder(bind), note="regard's own backend, named", memory_measured=False
        )

    return tuple(implementation(backend) for backend in backends)
