"""The library of English plurals, imported without what makes its import take seconds.

It has its functions check the types of their arguments when they are called, and for that parses
its own source anew for each of them. Ours are checked before.
"""

from unittest.mock import patch

with patch("typeguard.typechecked", lambda function: function):
    import inflect

ENGINE = inflect.engine()
