"""The rules of each task: the options whose defaults the data decide, as a table.

The columns are for fewer than 1,000, 10,000 and 100,000 training examples, and for more.
"""

from regard.tasks.fitting import (
    BYTES,
    Rules,
    context,
    epochs,
    even,
    examples_of_a_batch,
    for_architecture,
    heads,
    image_architecture,
    image_pooling,
    language_vocabulary,
    pair_length,
    same_as,
    side_tokenizer,
    staged,
    table,
    tokenizer,
    tokens_of_a_batch,
    training_length,
    validate_every,
    vocabulary,
)

CLASSIFY: Rules = {
    "tokenizer": tokenizer("source", most=250),
    "vocabulary": vocabulary(1_000, 1_000, 4_000, 16_000),
    "embedding": table(64, 128, 128, 256),
    "hidden": even(table(64, 128, 256, 256, accelerator=(64, 128, 256, 512))),
    "layers": for_architecture(transformer=table(1, 2, 4, 6), recurrent=table(1, 1, 1, 2)),
    "heads": heads,
    "dropout": for_architecture(transformer=table(0.3, 0.3, 0.2, 0.1), recurrent=table(0.5, 0.5, 0.5, 0.3)),
    "batch_size": examples_of_a_batch(16, 32, 64, 64, accelerator=(16, 32, 128, 256), most=8_000),
    **training_length(epochs(1_500, 3_000, 10_000, 20_000), 0.4),
}

TRANSLATE: Rules = {
    "source_tokenizer": side_tokenizer("source"),
    "target_tokenizer": side_tokenizer("target"),
    "max_length": pair_length,
    "vocabulary": vocabulary(1_000, 2_000, 8_000, 16_000),
    "embedding": table(128, 128, 256, 256),
    "hidden": even(table(128, 192, 256, 256, accelerator=(128, 256, 512, 512))),
    "encoder_layers": for_architecture(transformer=table(2, 3, 4, 6)),
    "decoder_layers": for_architecture(transformer=table(2, 3, 4, 6)),
    "heads": heads,
    "dropout": for_architecture(transformer=table(0.3, 0.3, 0.2, 0.1), recurrent=table(0.5, 0.3, 0.3, 0.2)),
    "tokens_per_batch": tokens_of_a_batch(32, 32, 64, 96, accelerator=(32, 32, 128, 256), side="target", most=2_000),
    "validation_pairs": table(200, 500, 1_000, 2_000),
    **training_length(epochs(2_000, 5_000, 12_000, 24_000, accelerator=(2_000, 5_000, 20_000, 60_000)), 2.0),
}

SUMMARIZE: Rules = {
    "tokenizer": tokenizer("source", "target"),
    "vocabulary": vocabulary(1_000, 2_000, 8_000, 16_000),
    "embedding": table(64, 64, 128, 128),
    "hidden": even(table(128, 128, 256, 256, accelerator=(128, 192, 256, 512))),
    "encoder_layers": for_architecture(transformer=table(2, 3, 4, 6)),
    "decoder_layers": for_architecture(transformer=table(2, 3, 4, 6)),
    "heads": heads,
    "dropout": table(0.3, 0.2, 0.1, 0.1),
    "tokens_per_batch": tokens_of_a_batch(8, 16, 32, 32, accelerator=(8, 16, 64, 128), side="length", most=8_000),
    "validation_articles": table(100, 200, 500, 500),
    **training_length(epochs(2_000, 4_000, 12_000, 24_000), 2.0),
}

LANGUAGE: Rules = {
    "vocabulary": language_vocabulary,
    "context": context,
    "hidden": even(table(128, 128, 192, 256, accelerator=(128, 192, 256, 384), steps=BYTES)),
    "layers": table(2, 3, 4, 4, accelerator=(2, 4, 6, 6), steps=BYTES),
    "heads": heads,
    "dropout": table(0.3, 0.2, 0.1, 0.1, steps=BYTES),
    "batch_size": table(16, 16, 16, 16, accelerator=(16, 32, 64, 64), steps=BYTES),
    **training_length(
        epochs(1_000, 2_000, 4_000, 10_000, accelerator=(1_000, 2_000, 6_000, 20_000), steps=BYTES, most=500), 0.4
    ),
}

IMAGES: Rules = {
    "architecture": image_architecture,
    "pooling": image_pooling,
    "grid": staged(table(64, 128, 256, 256)),
    "hidden": even(table(128, 128, 128, 192, accelerator=(128, 128, 192, 384))),
    "layers": table(4, 4, 4, 6),
    "heads": heads,
    "dropout": table(0.2, 0.1, 0.1, 0.1),
    "batch_size": examples_of_a_batch(16, 32, 64, 64, accelerator=(16, 32, 64, 128)),
    **training_length(epochs(1_500, 4_000, 10_000, 20_000), 0.4),
}

CAPTION: Rules = {
    "tokenizer": tokenizer("target"),
    "vocabulary": vocabulary(1_000, 1_000, 4_000, 8_000),
    "grid": staged(table(64, 128, 256, 256)),
    "embedding": table(64, 128, 256, 256),
    "hidden": even(table(128, 192, 256, 256, accelerator=(128, 192, 256, 512))),
    "heads": heads,
    "dropout": table(0.5, 0.4, 0.3, 0.3),
    "batch_size": examples_of_a_batch(16, 32, 32, 32, accelerator=(16, 32, 64, 128)),
    **training_length(epochs(1_500, 4_000, 12_000, 24_000), 1.0),
}

SOUNDS: Rules = {
    "hidden": even(table(128, 128, 256, 256)),
    "encoder_layers": for_architecture(transformer=table(2, 4, 4, 6)),
    "heads": heads,
    "batch_size": examples_of_a_batch(8, 16, 32, 32, accelerator=(8, 16, 64, 128), most=16_000),
    **training_length(epochs(1_500, 4_000, 10_000, 20_000), 0.4),
}

TRANSCRIBE: Rules = {
    "hidden": even(table(128, 192, 256, 256, accelerator=(128, 256, 256, 512))),
    "encoder_layers": for_architecture(transformer=table(2, 4, 6, 8)),
    "decoder_layers": for_architecture(transformer=table(1, 2, 2, 4)),
    "heads": heads,
    "decoder_hidden": same_as("hidden"),
    "embedding": table(64, 128, 128, 128),
    "time_masks": table(1, 2, 2, 2),
    "feature_masks": table(1, 2, 2, 2),
    "batch_size": examples_of_a_batch(8, 16, 16, 16, accelerator=(8, 16, 32, 32), most=16_000),
    **training_length(epochs(4_000, 8_000, 15_000, 30_000, accelerator=(4_000, 8_000, 30_000, 60_000)), 2.0),
}

SEGMENT: Rules = {"epochs": epochs(6_000, 12_000, 15_000, 30_000), "validate_every": validate_every(0.5)}
