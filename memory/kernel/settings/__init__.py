"""The table of all settings, and the overrides a workspace can use to change some of them."""
