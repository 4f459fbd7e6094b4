"""Charts as Altair objects, the same ones for pages and reports. They compute only geometry.

At most `MAX_POINTS` rows reach a browser: the queries down-sample, keeping minimum and maximum.
"""

MAX_POINTS = 5000
