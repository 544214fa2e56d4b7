"""docs/en/how-to/devices.md has the backends that there are, with their memory; each cell says how far it was tried."""

import re
from pathlib import Path

from regard.attention.execution import BACKENDS, OWN_BACKENDS
from regard.training.loop import STEPS_PER_READING

PAGE = Path("docs/en/how-to/devices.md").read_text("utf-8")
SEEN = "measured", "tested on the emulated device", "never run"


def table(title):
    """The rows of the first table under a title, each as a list of cells; the first row is the head."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return head, rows


def test_backends_are_those_of_the_registry():
    _, rows = table("Backends")
    documented = {row[0].strip("`"): row for row in rows}
    assert documented.keys() == set(OWN_BACKENDS), "give each backend a row of docs/en/how-to/devices.md"
    for name, row in documented.items():
        backend = BACKENDS[name]
        assert row[2] == ("linear" if backend.linear else "quadratic"), name
        assert row[3] == ("yes" if backend.reads else "no"), name


def test_each_call_has_a_backend_of_its_device_and_says_what_was_seen():
    head, rows = table("Calls")
    everywhere = {row[0].strip("`") for row in table("Backends")[1] if row[1] == "all"}
    for call, *cells in rows:
        for device, cell in zip(head[1:], cells, strict=True):
            names, seen = re.fullmatch(r"((?:`\w+`(?: or )?)+), (.+)", cell).groups()
            of_nvidia = {"flex", "triton"} if device == "NVIDIA" else set()
            known = set(OWN_BACKENDS) if device.startswith("CPU") else everywhere | of_nvidia
            assert set(re.findall(r"`(\w+)`", names)) <= known, (call, device)
            assert seen in SEEN, (call, device)


def test_waits_say_what_was_seen():
    assert all(row[-1] in SEEN for row in table("Waits of the host")[1])


def test_layers_and_tools_say_what_was_seen():
    _, rows = table("Layers, models and tools")
    for what, *cells in rows:
        assert all(cell.startswith(SEEN) for cell in cells), what


def test_the_interval_of_reading_losses_is_that_of_the_loop():
    assert set(re.findall(r"every (\d+)\s+steps", PAGE)) == {str(STEPS_PER_READING)}
