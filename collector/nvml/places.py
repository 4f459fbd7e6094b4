"""Where the child may hang: it says these names, or a card's UUID, before the calls there."""

from __future__ import annotations

INIT = "init"
EVENTS = "events"
ACTIVITY = "activity"
INDEX = "index "
"""A place whose name begins so is a card that could not be asked for its UUID yet: "index 3"."""
