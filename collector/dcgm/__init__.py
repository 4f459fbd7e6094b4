"""What dcgm-exporter's names, labels and pages mean; `collector.sources.dcgm` puts it together."""
