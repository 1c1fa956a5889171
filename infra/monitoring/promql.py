"""The PromQL that rules and panels have in common.

Several dashboards may tell of the same run, so figures of a run are the largest that any tells: never their sum, which
would count it twice. The job keeps clusters apart.
"""

from rollbook.processors.metric import Kind, Metric

JOB = "job"


def selector(metric: Metric, where: str = "") -> str:
    """Its series; of a histogram the buckets."""
    name = f"{metric.name}_bucket" if metric.kind is Kind.HISTOGRAM else metric.name
    return f"{name}{{{where}}}" if where else name


def of_run(metric: Metric, where: str = "") -> str:
    """A figure of a run, with all of its labels."""
    return f"max by ({_labels(metric)}) ({selector(metric, where)})"


def one_of_run(metric: Metric, where: str = "") -> str:
    """A figure of a run of which there is one: it has no label, or `where` leaves one value."""
    return f"max by ({JOB}, run) ({selector(metric, where)})"


def growth(metric: Metric, window: str, where: str = "", function: str = "increase") -> str:
    """What a counter of a run has grown by, or another function of a window, with all of its labels."""
    return f"max by ({_labels(metric)}) ({function}({selector(metric, where)}[{window}]))"


def total(of: str, *labels: str) -> str:
    """The sum over a run, or over some labels of it."""
    return f"sum by ({', '.join((JOB, 'run', *labels))}) ({of})"


def _labels(metric: Metric) -> str:
    le = ("le",) if metric.kind is Kind.HISTOGRAM else ()
    return ", ".join((JOB, *metric.labels, *le))
