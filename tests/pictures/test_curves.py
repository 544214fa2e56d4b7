import numpy as np
import pytest

from regard.errors import ArgumentError, ShapeError
from regard.pictures import bleu_by_length, training_curves


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
        assert lines(loss) == {"train_loss": [[10, 3.5], [30, 2.5]]}
        assert lines(quality) == {"val_bleu": [[20, 12.5], [30, 30]]}
        assert [text.get_text() for text in quality.texts] == ["30.0"]
        assert loss.get_xlabel() == "step"
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


def test_long_curves_have_a_moving_average():
    values = np.random.default_rng(0).random(1001)
    loss, _ = training_curves({"train_loss": values}).axes
    raw, mean = loss.get_lines()
    assert len(raw.get_xdata()) == 1001
    assert mean.get_label() == "train_loss (mean of 20)"
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
    assert figure.axes[0].get_legend().get_texts()[0].get_text() == r"$loss_{\n"


def test_wrong_metrics():
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


def test_wrong_bins():
    with pytest.raises(ShapeError, match=r"series\['a'\] must have one number for each of the 2 bins; it has 1"):
        bleu_by_length(["1", "2"], {"a": [1.0]})
    with pytest.raises(ShapeError, match="counts"):
        bleu_by_length(["1", "2"], {"a": [1.0, 2.0]}, [3])
    for bins, series in (([], {"a": []}), (["1"], {})):
        with pytest.raises(ArgumentError, match="not be empty"):
            bleu_by_length(bins, series)
