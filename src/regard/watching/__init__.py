"""Watching: a record of every attention call of any PyTorch model, whose output never changes.

::

    with regard.watch(model, read=regard.Readings(entropy=True)) as seen:
        model(**inputs)
    seen.calls

A call passes through these files, in this order:

1. `interception`: a function mode and replaced names catch the functions that compute attention;
2. `handlers` (and `softmax_tracking`, for attention that a model writes itself): one handler for each function;
3. `thread_state.run_watched`: runs the call unchanged, then reports it to the contexts of its model (`owners`);
4. `watch.Watch.take`: reads the call (`call_problems` or `weighted_sum`, as an `intercepted_call`) and makes its record
   (`attention_call`), with the kind of its mask (`mask_kind`);
5. `call_reader`: takes the readings.

A context that changes calls (`intervention`; `ablation` is a case) comes in between: `changed_call` makes the changes,
at positions that `call_positions` finds, with elements of other runs from `earlier_elements`; then the call is reported
as it is after them.

For norms and outputs, `projections` finds the module that projects the heads, and `residual_stream` follows its output
to the logits; `linear_maps` calls these modules with other inputs to find their matrices, and `logit_path` stores them.
For inputs, `write_tracking` follows what modules wrote to the residual stream up to queries and keys; `weight_sources`
explains a weight by it. Both follow functions by `linear_tracking`, which records for each tensor how it is linear in
others (`write_steps`).

`generation` joins the records of each generated sequence, `layer_graph` computes rollout and flow, `contributions` the
contributions to logits, and `survey` the statistics of each head over many texts, of which `survey_difference`
compares two. `patching` measures the effect of each head by changes of its run (`intervention`). `importance` computes
how much each token matters for an output, from the passes of `measured_output`, and `faithfulness` how far its methods
agree with leave-one-out. `families` has the names by which the models of other libraries are recognized; `hugging_face`
makes regard an attention implementation of transformers.
"""

from regard.names.lazy_names import public_names
from regard.watching.ablation import ablate
from regard.watching.attention_call import AttentionCall
from regard.watching.change import Change
from regard.watching.contributions import logit_contributions, value_logits
from regard.watching.coverage import UnseenAttentionWarning
from regard.watching.faithfulness import faithfulness
from regard.watching.faithfulness_report import Faithfulness
from regard.watching.faithfulness_scores import MethodScores, TextImportance
from regard.watching.head_statistics import STATISTICS
from regard.watching.head_survey import Prunable, Survey
from regard.watching.head_tables import HeadStatistics
from regard.watching.hugging_face import register_transformers
from regard.watching.importance import IMPORTANCE_METHODS, ImportanceMethod, importance
from regard.watching.intervention import ChangedCall, Intervention, intervene
from regard.watching.layer_graph import flow, rollout
from regard.watching.patched import Patched, PatchedEffect, PatchingWarning
from regard.watching.patching import patch
from regard.watching.survey import survey
from regard.watching.survey_difference import StatisticDifference, SurveyDifference
from regard.watching.watch import Watch, watch
from regard.watching.watched_texts import WatchedText
from regard.watching.weight_parts import PartPair, WeightParts
from regard.watching.weight_sources import explain_weight

__all__ = [
    "watch",
    "Watch",
    "AttentionCall",
    "Change",
    "ChangedCall",
    "Faithfulness",
    "HeadStatistics",
    "IMPORTANCE_METHODS",
    "ImportanceMethod",
    "Intervention",
    "MethodScores",
    "PartPair",
    "Patched",
    "PatchedEffect",
    "PatchingWarning",
    "Prunable",
    "STATISTICS",
    "StatisticDifference",
    "Survey",
    "SurveyDifference",
    "TextImportance",
    "UnseenAttentionWarning",
    "WatchedText",
    "WeightParts",
    "ablate",
    "explain_weight",
    "faithfulness",
    "flow",
    "importance",
    "intervene",
    "logit_contributions",
    "patch",
    "register_transformers",
    "rollout",
    "survey",
    "value_logits",
]

__dir__ = public_names(__name__)
