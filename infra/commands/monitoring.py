"""`rollbook monitoring`: prints the files for Prometheus and Grafana, so that an installed package is enough."""

import typer

from rollbook.infra.monitoring.files import File

app = typer.Typer(help="Print alert rules for Prometheus, or a dashboard for Grafana.", no_args_is_help=True)


@app.command(epilog="Example: rollbook monitoring rules > rollbook.rules.yml")
def rules() -> None:
    """Print the alert rules, a file for Prometheus' `rule_files`.

    Each alert names in its annotation `runbook` where docs/incidents.md says what to do.
    """
    print(File.RULES.text(), end="")


@app.command(epilog="Example: rollbook monitoring grafana > rollbook.dashboard.json")
def grafana() -> None:
    """Print the dashboard, which Grafana (10.1 and later) imports; it asks for the Prometheus to look at, and a run."""
    print(File.GRAFANA.text(), end="")
