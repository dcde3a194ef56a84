"""What agents say is text, whatever names processes gave themselves."""

from __future__ import annotations

import io
from pathlib import Path

from gpuward.agents.telling import Teller

ODD = "in use by process 4711 (\x1b[2J\x1b]0;x\x07é\u202e\x9b1m) of the host\nand more"
SAID = r"in use by process 4711 (\x1b[2J\x1b]0;x\x07é\u202e\x9b1m) of the host and more"


def test_nothing_that_is_said_does_anything_to_a_terminal(tmp_path: Path) -> None:
    last, stream = tmp_path / "last", io.StringIO()
    last.touch()
    teller = Teller(stream, last)
    teller.say(f"waiting: {ODD}")
    assert stream.getvalue().partition(" ")[2] == f"waiting: {SAID}\n"
    teller.leave(ODD)
    assert last.read_text() == SAID
