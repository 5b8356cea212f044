"""The Django app that stores people's memories."""
