#!/usr/bin/env bash
# sacrebleu 2.6.0 and jiwer 4.0.0: for an empty answer to an empty reference, chrF gives its worst score, TER and WER their best.
#
# One guesses that all three call it right, or that all refuse it. A sound of silence, or a caption that says nothing, so
# counts as wrong or as right by the metric alone. And chrF of a text of one letter against itself is 100: it has no
# smallest length, as BLEU has.
#
# Seen: chrF 0.0 · TER 0.0 · WER 0.0 · chrF of one letter 100.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sacrebleu==2.6.0 jiwer==4.0.0
"$folder/venv/bin/python" - <<'PYTHON'
import jiwer
from sacrebleu.metrics import CHRF, TER

chrf, ter, wer = CHRF().sentence_score("", [""]).score, TER().sentence_score("", [""]).score, float(jiwer.wer([""], [""]))
letter = CHRF().sentence_score("a", ["a"]).score
print(f"chrF {chrf} · TER {ter} · WER {wer} · chrF of one letter {letter}")
assert (chrf, ter, wer, letter) == (0.0, 0.0, 0.0, 100.0)
PYTHON
