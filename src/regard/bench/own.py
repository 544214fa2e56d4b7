"""regard held to one of its own backends: contenders that show whether the planner's choice is right."""

from regard.attention import attend
from regard.attention.verbs import BackendName
from regard.bench.columns import OWN
from regard.bench.inner_product import QKV, Options
from regard.bench.running import Bound, torch_ready
from regard.bench.task import Contender, Inputs


def held_to(*backends: BackendName, options: Options | None = None) -> tuple[Contender, ...]:
    """`regard.attend` on each of these backends, in the columns ``regard-reference`` and so on.

    Their memory is not weighed: the backend that `auto` chooses has it in regard's own column.

    Args:
        backends: by name; one that cannot run the task becomes a cell that says why.
        options: inputs → the keywords of `regard.attend`.
    """

    def contender(backend: BackendName) -> Contender:
        def bind(inputs: Inputs) -> Bound:
            keywords = {} if options is None else options(inputs)
            return (lambda *tensors: attend(*tensors, **keywords, backend=backend)), tuple(inputs[n] for n in QKV)

        return Contender(OWN[backend], torch_ready(bind), note="regard's own backend, named", weighed=False)

    return tuple(contender(backend) for backend in backends)
