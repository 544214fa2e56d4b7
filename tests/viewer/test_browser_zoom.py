"""200 % zoom and reduced motion: sharp, whole, exact under the mouse, and still."""

import pytest

import viewer_documents as documents
from regard.viewer import View
from regard.viewer.view import VIEWS

ZOOMED = {"size": (320, 640), "device_scale_factor": 2}
"""A window of 640 pixels at 200 %: 320 CSS pixels."""


@pytest.mark.parametrize("font", ["pages", "wide_pages"])
def test_nothing_is_cut_off_and_canvases_are_sharp(show, font, request):
    shown = show(View(documents.everything()), pages=request.getfixturevalue(font), **ZOOMED)
    for view in VIEWS:
        shown.show(view)
        assert shown.page.evaluate("devicePixelRatio") == 2
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= 320
        drawn, laid_out = shown.page.evaluate(
            """() => {
              const canvas = document.getElementById('viewer').shadowRoot.querySelector('canvas');
              const box = canvas.getBoundingClientRect();
              return [[canvas.width, canvas.height], [2 * box.width, 2 * box.height]];
            }"""
        )
        assert drawn == pytest.approx(laid_out, abs=1), view
        assert view == "walk" or shown.colors > 12, view  # a narrow walk folds its map
        boxes = shown.page.evaluate(
            """() => {
              const root = document.getElementById('viewer').shadowRoot;
              const names = 'button:not([role=tab], .strip *), select, input, label, h1, h2, p:not(.readout)';
              const all = [...root.querySelectorAll(names)];
              return all.filter((one) => one.offsetParent).map((one) => {
                const box = one.getBoundingClientRect();
                return [one.textContent, box.left, box.right, one.scrollWidth - one.clientWidth];
              });
            }"""
        )
        for text, left, right, hidden in boxes:  # a walk's strip scrolls
            assert 0 <= left <= right <= 320, (view, text)
            assert hidden <= 1, (view, text)


def test_the_mouse_hits_the_cell_that_is_drawn_there(show, numbers):
    record, weights = documents.alignment()
    shown = show(View(record, head=1), **ZOOMED)
    for row, column in ((0, 0), (2, 4), (1, 3)):
        text = shown.hover(row=row, column=column)
        assert f"q{row}" in text
        assert f"k{column}" in text
        assert numbers(text)[0] == pytest.approx(float(weights[1, row, column]), abs=5e-5)


def is_still(shown):
    """Whether no picture is asked for in an eighth of a second, once the maps of all heads are made."""
    for _ in range(40):
        before = shown.page.evaluate("window.frames_asked")
        shown.page.wait_for_timeout(125)
        if shown.page.evaluate("window.frames_asked") == before:
            return True
    return False


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_nothing_moves_by_itself(show, motion):
    """One picture for each change, none between them; no transition, animation or smooth scrolling anywhere."""
    shown = show(View(documents.everything()), reduced_motion=motion)
    assert shown.page.evaluate(f"matchMedia('(prefers-reduced-motion: {motion})').matches")
    shown.page.evaluate(
        """() => {
          window.frames_asked = 0;
          const original = window.requestAnimationFrame.bind(window);
          window.requestAnimationFrame = (callback) => { window.frames_asked += 1; return original(callback); };
        }"""
    )
    for view in VIEWS:
        shown.call("show", view)
        shown.settle()
        assert is_still(shown), view
        moving = shown.page.evaluate(
            """() => {
              const root = document.getElementById('viewer').shadowRoot;
              const styles = [...root.querySelectorAll('*')].map((one) => getComputedStyle(one));
              return [root.getAnimations().length + document.getAnimations().length, styles.filter((style) =>
                style.animationName !== 'none' || style.scrollBehavior !== 'auto'
                || style.transitionDuration.split(',').some((time) => parseFloat(time) > 0)).length];
            }"""
        )
        assert moving == [0, 0], view


def test_a_key_makes_one_picture(show):
    shown = show(View(documents.everything()), reduced_motion="reduce")
    shown.page.locator("canvas").focus()
    shown.settle()
    drawn = shown.page.evaluate(
        """async () => {
          const canvas = document.getElementById('viewer').shadowRoot.querySelector('canvas');
          let pictures = 0;
          const context = canvas.getContext('2d');
          const original = context.setTransform.bind(context);
          context.setTransform = (...given) => { pictures += given.length === 6 ? 1 : 0; return original(...given); };
          canvas.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true, composed: true }));
          await new Promise((done) => setTimeout(done, 150));
          return pictures;
        }"""
    )
    assert drawn == 1
