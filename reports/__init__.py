"""Reports: one self-contained HTML file each, with the figures of the pages."""
