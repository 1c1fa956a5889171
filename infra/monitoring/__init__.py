"""What is made of the metrics: alert rules for Prometheus and a dashboard for Grafana, each from a table."""
