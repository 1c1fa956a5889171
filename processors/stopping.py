"""The signals that end a server of ours in an orderly way: a processor, a dashboard."""

import signal


def stopping() -> tuple[signal.Signals, ...]:
    """SIGHUP among them, which a terminal sends that is closed; not where it is ignored, as `nohup` asks for."""
    asked = (signal.SIGINT, signal.SIGTERM)
    return asked if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*asked, signal.SIGHUP)
