"""What the generated files of this folder are made from: alert rules and Grafana dashboards. ``build.py`` writes them."""
