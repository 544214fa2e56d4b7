"""Watching: a record of every attention call of any PyTorch model, whose output does not change.

::

    with regard.watch(model, read=regard.Readings(entropy=True)) as seen:
        model(**inputs)
    seen.calls

From the records of a model's layers come `rollout` and `flow`; from many texts the statistics of each head (`survey`).
`register_transformers` makes regard an attention implementation inside of the models of Hugging Face.
"""

from regard.watching.ablation import ablate
from regard.watching.attention_call import AttentionCall
from regard.watching.contributions import logit_contributions
from regard.watching.coverage import UnseenAttentionWarning
from regard.watching.head_statistics import STATISTICS
from regard.watching.head_survey import HeadStatistics, Prunable, Survey
from regard.watching.hugging_face import register_transformers
from regard.watching.layer_graph import flow, rollout
from regard.watching.survey import survey
from regard.watching.watch import Watch, watch

__all__ = [
    "watch",
    "Watch",
    "AttentionCall",
    "HeadStatistics",
    "Prunable",
    "STATISTICS",
    "Survey",
    "UnseenAttentionWarning",
    "ablate",
    "flow",
    "logit_contributions",
    "register_transformers",
    "rollout",
    "survey",
]
