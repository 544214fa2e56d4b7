"""The laws of models and searches on an accelerator: the tests of other folders, run here."""

# ruff: noqa: F401

from models.conftest import batch, make
from models.speech.test_joint_search import encoded, head, test_a_row_does_not_depend_on_its_batch
from models.speech.test_listening import test_a_classifier_does_not_see_padding_nor_whether_weights_are_read
from models.test_copying import test_the_loss_is_that_of_the_mixture, test_the_mixture_is_equation_9
from models.test_decoders import (
    test_hard_attention_chooses_one_annotation,
    test_padding_changes_no_loss_and_no_gradient,
    test_scheduled_sampling_feeds_the_models_own_words,
    test_word_by_word_equals_teacher_forced,
)
from models.test_encoders import test_an_empty_row_has_no_annotations, test_padding_has_no_part_in_anything
from models.test_hard_attention import test_chooses_one_seen_annotation
from models.test_language_model import (
    test_no_prediction_depends_on_later_tokens,
    test_steps_of_a_language_model_give_the_whole_prediction,
)
from models.test_minimum_risk import test_one_sample_is_sampling_and_a_seed_repeats_it
from models.test_pointer_generator import extended, test_each_step_is_a_distribution_and_the_loss_is_its_mean
