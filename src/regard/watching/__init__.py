"""Any model's attention: across its layers, over a corpus; and regard as an implementation inside of other models."""

from regard.watching.flow import flow
from regard.watching.hugging_face import register_transformers
from regard.watching.rollout import rollout

__all__ = ["flow", "register_transformers", "rollout"]
