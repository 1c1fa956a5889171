"""How a figure is said in a few characters. Pure."""


def age(seconds: float | None) -> str:
    """`3 s`, `4 min`, `2 h`, `9 d`."""
    if seconds is None:
        return "?"
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{int(seconds // length):,} {unit}"
    return f"{int(seconds)} s"


def rate(value: float | None) -> str:
    """Per second, to three places or so."""
    if value is None:
        return "?"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 or not value else f"{value:.2f}"


def share(value: float | None) -> str:
    """In per cent; what is not all is not said to be."""
    if value is None:
        return "?"
    if 0.995 <= value < 1:
        return ">99%"
    if 0 < value < 0.005:
        return "<1%"
    return f"{value:.0%}"
