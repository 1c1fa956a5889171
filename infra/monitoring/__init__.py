"""What is made of the metrics: alert rules for Prometheus and a dashboard for Grafana, each from a table.

`python -m rollbook.infra.monitoring` writes the files anew; each alert has its section in docs/incidents.md.
"""
