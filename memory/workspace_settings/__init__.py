"""The table of all settings, and the overrides with which a workspace changes some of them."""
