"""An answer does not depend on the other inputs: neither a beam's, nor one that is chosen from random draws."""

import pytest

import regard
from image_files import colours

SENTENCES = ["The dog sleeps.", "My sister reads the old book.", "A cat.", "The old man sees a red house."]
INPUTS = {
    "transformer": SENTENCES, "summarize": SENTENCES, "summarize-transformer": SENTENCES,
    "caption-soft": [colours(20 + number, 30) for number in range(4)],
}  # fmt: skip
SEARCHES = {
    "samples": {"samples": 7, "temperature": 1.5, "n_best": 2},
    "one sample": {"samples": 1, "temperature": 1.0},
    "greedy": {"beam": 1},
    "beam": {"beam": 3, "n_best": 2},
}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", INPUTS)
def test_neighbours_order_and_batches_change_no_answer(run_of, image_run, name, search):
    inputs, options = INPUTS[name], SEARCHES[search]
    run = regard.load((image_run if name.startswith("caption") else run_of)(name))

    def answers(numbers, **more):
        found = run.predict([inputs[number] for number in numbers], **options, **more)
        return {
            number: [(each.text, pytest.approx(each.score, abs=1e-4)) for each in (one, *one.next_best)]
            for number, one in zip(numbers, found, strict=True)
        }

    together = answers(range(4))
    assert answers(range(4), batch_size=1) == together
    assert answers([3, 1, 0, 2], batch_size=3) == together
    for numbers in ([2], [0, 2], [1, 0, 2]):
        assert answers(numbers)[2] == together[2]
    if "samples" in options:
        assert answers(range(4), seed=2) != together


@pytest.mark.parametrize("name", ["transformer", "caption-soft"])
def test_the_samples_of_an_evaluation_are_those_of_a_prediction(run_of, image_run, name, tmp_path):
    """Whatever the limit is, and whatever batches there are."""
    options = {"samples": 5, "temperature": 1.5}
    if name == "caption-soft":
        run = regard.load(image_run(name))
        three, two = (run.evaluate(limit=limit, **options).predictions for limit in (3, 2))
        again = run.predict([run.folder.path / "corpus" / "test-1.png"], **options)
    else:
        run, file = regard.load(run_of(name)), tmp_path / "pairs.tsv"
        file.write_text("english\tspanish\n" + "".join(f"{text}\t{text}\n" for text in SENTENCES))
        three, two = (run.evaluate(str(file), limit=limit, **options).translations for limit in (3, 2))
        again = run.predict(SENTENCES[:1], **options)
    assert [one.text for one in three[:2]] == [one.text for one in two]
    assert again[0].text == three[0].text
