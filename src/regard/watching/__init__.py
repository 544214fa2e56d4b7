"""Watching: a record of every attention call of any PyTorch model, whose output does not change.

::

    with regard.watch(model, read=regard.Readings(entropy=True)) as seen:
        model(**inputs)
    seen.calls
"""

from regard.watching.ablation import ablate
from regard.watching.attention_call import AttentionCall
from regard.watching.contributions import logit_contributions
from regard.watching.watch import UnseenAttentionWarning, Watch, watch

__all__ = [
    "watch",
    "Watch",
    "AttentionCall",
    "UnseenAttentionWarning",
    "ablate",
    "logit_contributions",
]
