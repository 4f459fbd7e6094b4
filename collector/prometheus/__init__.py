"""History out of Prometheus, Thanos or VictoriaMetrics: what to ask, how to ask it, and what the answers mean."""
