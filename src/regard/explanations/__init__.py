"""Worked calculations: every number of an attention by name, as tables, as pictures, as arithmetic, as JSON."""

from regard.explanations.explain import explain
from regard.explanations.explanation import Explanation

__all__ = ["Explanation", "explain"]
