"""The laws of layers, models, searches and watches on an accelerator: the tests of other folders, run here."""

# ruff: noqa: F401

from models.conftest import batch, make
from models.speech.test_joint_search import encoded, head, test_a_row_does_not_depend_on_its_batch
from models.speech.test_listening import (
    test_a_classifier_does_not_see_padding_nor_whether_weights_are_read,
)
from models.test_chunked_loss import test_equals_cross_entropy_in_value_and_gradients
from models.test_copying import test_the_loss_is_that_of_the_mixture, test_the_mixture_is_equation_9
from models.test_decoders import (
    test_hard_attention_chooses_one_annotation,
    test_padding_changes_no_loss_and_no_gradient,
    test_scheduled_sampling_feeds_the_models_own_words,
    test_word_by_word_equals_teacher_forced,
)
from models.test_encoders import test_an_empty_row_has_no_annotations, test_padding_has_no_part_in_anything
from models.test_hard_attention import (
    test_chooses_one_seen_annotation,
)
from models.test_language_model import (
    test_no_prediction_depends_on_later_tokens,
    test_steps_are_the_whole_prediction,
)
from models.test_minimum_risk import test_one_sample_is_sampling_and_a_seed_repeats_it
from models.test_pointer_generator import (
    extended,
    test_each_step_is_a_distribution_and_the_loss_is_its_mean,
    test_searches_feed_words_out_of_the_vocabulary_back_as_unknown,
)
from models.test_search import (
    test_a_translator_is_searched_row_by_row_and_left_in_its_mode,
    test_samples_follow_the_model,
)
from models.test_text_classifier import (
    test_padding_has_no_effect,
    test_word_dropout_gives_unknown_tokens_in_training_alone,
)
from models.test_transformer_translator import test_padding_changes_nothing
from models.vision.test_captioners import (
    model,
    test_a_search_step_is_a_step_with_known_tokens,
    test_padding_has_no_influence,
)
from models.vision.test_segmenter import test_images_of_a_batch_do_not_see_each_other
from nn.test_attention import (
    test_a_memory_gives_what_the_score_gives,
    test_lengths_are_shorter_inputs_and_an_empty_row_has_context_zero,
    test_location_aware_scores_see_the_weights_of_the_step_before,
)
from nn.test_attention_pooling import test_several_heads_are_several_poolings, test_weights_do_not_change_the_output
from nn.test_channel_gates import (
    test_cbam_is_the_channel_gate_and_then_the_spatial_gate,
    test_squeeze_and_excitation_is_hu_et_al,
)
from nn.test_drop_in import test_a_mask_of_numbers_gets_its_gradient, test_it_gives_torchs_outputs_weights_and_gradients
from nn.test_dual_attention import test_channel_attention_is_fu_et_al, test_position_attention_is_fu_et_al
from nn.test_feature_fusion import test_fusion_is_dai_et_al
from nn.test_multihead import (
    test_a_query_that_sees_nothing_gets_the_bias_and_no_gradient,
    test_biases_and_masks_add_up_and_appended_keys_have_neither,
    test_rotary_turns_queries_and_keys_with_their_ends_aligned,
    test_to_ask_for_weights_changes_no_bit_of_the_output,
)
from nn.test_non_local import test_a_nan_stays_in_its_image, test_the_equations_of_wang_et_al
from nn.test_recomputation import test_chunks_of_rows_change_nothing
from nn.test_transformer import (
    test_a_padded_batch_is_each_sequence_alone,
    test_a_search_can_continue_from_any_earlier_cache,
    test_decoding_with_a_cache_is_full_decoding,
)
from watching.test_beyond_weights import test_ablation, test_weighted_norms
from watching.test_calls_read_at_once import (
    test_numbers_that_change_after_the_call_are_read_as_they_were,
    test_tiles_of_a_device_have_weights_of_their_own,
    test_what_is_on_a_device_is_copied_once_a_pass,
)
from watching.test_survey import models, test_statistics_are_those_of_the_weights
from watching.test_ways import test_readings_are_those_of_observe, test_torch_multi_head, test_torch_transformer
