"""Worked calculations: every number of an attention by name, as tables, figures, arithmetic or JSON."""

from regard.explanations.explain import explain
from regard.explanations.explanation import Explanation

__all__ = ["Explanation", "explain"]
