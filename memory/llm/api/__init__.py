"""The API of what a language model settled."""
