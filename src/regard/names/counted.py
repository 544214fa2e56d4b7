"""Numbers of things, for messages."""


def counted(number: int, noun: str, after: str = "") -> str:
    """Returns a number with its noun: ``"1 batch an epoch"``, ``"1,200 batches an epoch"``."""
    plural = (
        f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}es" if noun.endswith(("ch", "s", "x")) else f"{noun}s"
    )
    return f"{number:,} {noun if number == 1 else plural}{after}"
