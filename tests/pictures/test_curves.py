import numpy as np
import pytest

from regard.errors import ArgumentError, ShapeError
from regard.pictures import Quality, bleu_by_length, training_curves


def lines(axes):
    return {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}


def test_rows_of_a_csv_and_columns_are_the_same():
    rows = [
        {"step": "10", "train_loss": "3.5", "val_bleu": ""},
        {"step": "20", "train_loss": "", "val_bleu": "12.5"},
        {"step": "30", "train_loss": "2.5", "val_bleu": "30", "lr": "0.1"},
    ]
    columns = {"step": [10, 20, 30], "train_loss": [3.5, None, 2.5], "val_bleu": [float("nan"), 12.5, 30]}
    for metrics in (rows, columns):
        loss, quality = training_curves(metrics).axes
        assert lines(loss) == {"training loss": [[10, 3.5], [30, 2.5]]}
        assert lines(quality) == {"BLEU": [[20, 12.5], [30, 30]]}
        assert [text.get_text() for text in quality.texts] == ["highest 30"]
        assert loss.get_xlabel() == "training step"
        assert quality.get_ylabel() == "BLEU"


def test_the_axis_of_quality_begins_at_zero_and_holds_every_curve():
    _, quality = training_curves({"val_bleu": [20, 30], "val_chrf": [40, 55]}).axes
    low, high = quality.get_ylim()
    assert low == 0
    assert high > 55
    assert quality.get_ylabel() == "BLEU, chrF"


def test_other_qualities_are_named():
    metrics = {"step": [1, 2], "val_loss": [3, 2], "val_accuracy": [0.5, 0.75], "val_lost": [1, 2], "val_bleu": [1, 2]}
    loss, quality = training_curves(metrics, qualities={"val_accuracy": "accuracy"}).axes
    assert [line.get_ydata().tolist() for line in loss.get_lines()] == [[3, 2]]
    assert [line.get_ydata().tolist() for line in quality.get_lines()] == [[0.5, 0.75]]
    assert quality.get_ylabel() == "accuracy"
    assert not training_curves(metrics, qualities={"val_loss": "loss of words"}).axes[0].get_lines()


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_legends_are_words():
    loss, quality = training_curves(
        {"train_loss": [1], "val_loss": [2], "Odd-loss": [3], "val_bleu": [4], "test_bleu": [5], "val_chrf": [6]}
    ).axes
    assert legend(loss) == ["training loss", "validation loss", "Odd-loss"]
    assert legend(quality) == ["BLEU", "test BLEU", "chrF"]
    # Two columns are never called the same.
    _, quality = training_curves({"val_bleu": [4], "bleu": [5]}).axes
    assert legend(quality) == ["val_bleu", "bleu"]


def test_one_step_has_an_axis_that_counts_and_numbers_stay_above_it():
    figure = training_curves({"step": [7], "val_bleu": [0.0], "val_chrf": [3.0]})
    figure.canvas.draw()
    quality = figure.axes[1]
    assert [tick for tick in quality.get_xticks() if 6 <= tick <= 8] == [6, 7, 8]
    bottom = quality.get_window_extent().y0
    assert all(text.get_window_extent().y0 >= bottom for text in quality.texts)
    _, quality = training_curves({"step": [10, 20, 30], "val_bleu": [None, None, 5]}).axes
    assert quality.get_xlim() == (29, 31)


@pytest.mark.parametrize("higher", [True, False])
def test_the_best_value_is_marked_in_the_direction_of_the_metric(higher):
    values = [0.5, 0.9, 0.125, 0.25]
    metrics = {"step": [1, 2, 3, 4], "val_loss": values, "train_loss": values, "val_x": values}
    loss, quality = training_curves(metrics, qualities={"val_x": Quality("X", "0 to 1", higher)}).axes
    best, text = ((2, 0.9), "highest 0.9") if higher else ((3, 0.125), "lowest 0.125")
    assert [(tuple(one.xy), one.get_text()) for one in quality.texts] == [(best, text)]
    assert [(tuple(one.xy), one.get_text()) for one in loss.texts] == [((3, 0.125), "lowest 0.125")]
    assert quality.get_ylabel() == "X (0 to 1)"
    assert legend(quality) == ["X"]


def test_metrics_of_other_units_have_their_own_panel():
    qualities = {"val_a": Quality("A", "0 to 100"), "val_b": Quality("B", "0 to 10"), "val_c": Quality("C", "0 to 100")}
    figure = training_curves({"step": [1], "val_a": [30], "val_b": [0.5], "val_c": [20]}, qualities=qualities)
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "A, C (0 to 100)", "B (0 to 10)"]


def test_long_curves_have_a_moving_average():
    values = np.random.default_rng(0).random(1001)
    loss, _ = training_curves({"train_loss": values}).axes
    raw, mean = loss.get_lines()
    assert len(raw.get_xdata()) == 1001
    assert mean.get_label() == "training loss (mean of 20)"
    assert (mean.get_xdata()[0], mean.get_xdata()[-1]) == (19, 1000)
    np.testing.assert_allclose(mean.get_ydata()[0], values[:20].mean())
    np.testing.assert_allclose(mean.get_ydata()[-1], values[-20:].mean())


@pytest.mark.parametrize("metrics", [[], {}, {"epoch": []}, {"val_loss": [float("nan")], "val_bleu": [None]}])
def test_nothing_measured_is_said(metrics):
    figure = training_curves(metrics)
    assert [axes.texts[0].get_text() for axes in figure.axes] == [
        "no loss was measured",
        "neither BLEU nor chrF was measured",
    ]
    figure.canvas.draw()


def test_a_single_point_and_a_hostile_name():
    figure = training_curves({"epoch": [0], "$loss_{\n": [2.0], "bleu": [0.0]})
    figure.canvas.draw()
    assert figure.axes[0].get_legend().get_texts()[0].get_text() == "$loss_{↵"


def test_training_curves_refuse_wrong_metrics():
    with pytest.raises(ArgumentError, match=r"metrics\['val_loss'\] must hold numbers; row 1 holds 'abc'"):
        training_curves([{"val_loss": 1}, {"val_loss": "abc"}])
    with pytest.raises(ShapeError, match="one length"):
        training_curves({"step": [1, 2], "val_loss": [1]})


def test_bleu_by_length_has_a_line_a_model_and_a_bar_a_bin():
    figure = bleu_by_length(
        [range(1, 11), range(11, 12), "12+"], {"none": [30, 20, float("nan")], "$additive": [31, 30, 29]}, [7, 5, 3]
    )
    axes, counts = figure.axes
    figure.canvas.draw()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["none", "$additive"]
    assert [tick.get_text() for tick in counts.get_xticklabels()] == ["1–10", "11", "12+"]
    assert [bar.get_height() for bar in counts.patches] == [7, 5, 3]
    np.testing.assert_array_equal(axes.get_lines()[1].get_ydata(), [31, 30, 29])
    assert len({line.get_color() for line in axes.get_lines()}) == 2
    assert len({line.get_marker() for line in axes.get_lines()}) == 2
    assert len(bleu_by_length(["1"], {"a": [3.0]}).axes) == 1


@pytest.mark.parametrize(
    "values", [[100.0, 97.0, 100.0], [0.0, 0.0, 0.0], [-2.0, -1.0, -3.0], [0.3, float("nan"), 0.1]]
)
def test_the_length_curve_is_not_cut_off(values):
    figure = bleu_by_length(["1–5", "6–10", "11+"], {"a": values}, [1, 2, 3])
    axes = figure.axes[0]
    low, high = axes.get_ylim()
    finite = [value for value in values if value == value]
    assert low <= min(finite)
    assert max(finite) < high or max(finite) <= 0
    assert not axes.get_lines()[0].get_clip_on()


def test_models_beyond_the_palette_differ_in_their_dashes():
    lines = bleu_by_length(["1", "2"], {str(model): [1, 2] for model in range(15)}).axes[0].get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 15


def test_nothing_measured_by_length_is_said():
    figure = bleu_by_length(["1"], {"a": [float("nan")]})
    assert [text.get_text() for text in figure.axes[0].texts] == ["nothing was measured"]


def test_bleu_by_length_refuses_wrong_bins():
    with pytest.raises(ShapeError, match=r"series\['a'\] must have one number for each of the 2 bins; it has 1"):
        bleu_by_length(["1", "2"], {"a": [1.0]})
    with pytest.raises(ShapeError, match="counts"):
        bleu_by_length(["1", "2"], {"a": [1.0, 2.0]}, [3])
    for bins, series in (([], {"a": []}), (["1"], {})):
        with pytest.raises(ArgumentError, match="not be empty"):
            bleu_by_length(bins, series)


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("values", [["inf", 3, 2], ["-inf", 2, 3], [2, "nan", "inf", 3]])
def test_values_that_are_not_finite_are_left_out(values, higher):
    rows = {"step": range(1, len(values) + 1), "val_loss": values, "bits": values}
    figure = training_curves(rows, qualities={"bits": Quality("bits", "bits", higher_is_better=higher)})
    figure.canvas.draw()
    loss, quality = figure.axes
    points = [[step, value] for step, value in enumerate(values, start=1) if isinstance(value, int)]
    assert lines(loss) == {"validation loss": points}
    assert lines(quality) == {"bits": points}
    assert [text.get_text() for text in loss.texts] == ["lowest 2"]
    assert [text.get_text() for text in quality.texts] == ["highest 3" if higher else "lowest 2"]
    assert quality.get_ylim() == (0, pytest.approx(1.14 * 3))


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_a_metric_that_never_is_finite_is_not_measured(value):
    rows = {"step": [1, 2, 3], "val_loss": [value] * 3, "bits": [value] * 3}
    figure = training_curves(rows, qualities={"bits": Quality("bits", "bits", higher_is_better=False)})
    figure.canvas.draw()
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == [
        "no loss was measured",
        "no metric was measured",
    ]
