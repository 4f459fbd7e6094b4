"""Prometheus remote write as it is received: from a request's bytes to samples that say what they are about."""
