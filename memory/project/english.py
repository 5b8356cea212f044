"""The library of English plurals, imported without the part of its import that takes seconds.

It decorates its functions to check the types of their arguments, which parses its source again for
each of them. We check our arguments ourselves.
"""

from unittest.mock import patch

with patch("typeguard.typechecked", lambda function: function):
    import inflect

ENGINE = inflect.engine()

# Singulars that it takes for plurals ("lens" of "len", "regimen" of "regiman"), or turns into men.
NOUNS = {
    **{
        word: f"{word}s"
        for word in (
            *("abdomen", "acumen", "amen", "bitumen", "cyclamen", "dolmen", "foramen", "hymen"),
            *("lumen", "omen", "ramen", "regimen", "semen", "specimen", "stamen"),
            *("german", "norman", "roman"),
        )
    },
    **{
        word: f"{word}es"
        for word in ("alias", "atlas", "bias", "canvas", "christmas", "lens", "pancreas", "tennis")
    },
}
for _singular, _plural in NOUNS.items():
    ENGINE.defnoun(_singular, _plural)
