"""Searching a user's log by words and by meaning, without a language model.

`finding.find` is the entry point. `words` turns texts into terms, `ranking` has the formula,
`segments` defines the index format, `index` reads the index rows, `index_maintenance` writes them,
`filters` defines the conditions that narrow a search, and `followups` completes a question from the
preceding conversation.
"""
