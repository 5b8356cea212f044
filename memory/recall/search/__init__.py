"""Search in a user's log: words and what is heard around them, ranked without a language model.

`finding.find` is the way in. `words` makes terms of texts, `ranking` has the formula, `segments`
the form of an index, `index` its rows, `filters` what a request may narrow a search by;
`followups` completes a question by the turns before it.
"""
