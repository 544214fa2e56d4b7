"""Worked calculations: every number of an attention by name, as tables, figures, arithmetic or JSON."""

from regard.explanations.explain import explain
from regard.explanations.explanation import Explanation
from regard.names.lazy_names import public_names

__all__ = ["Explanation", "explain"]

__dir__ = public_names(__name__)
