"""The table of all settings, and a workspace's overrides of them."""
