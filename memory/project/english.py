"""The library of English plurals, imported without what makes its import take seconds.

It has its functions check the types of their arguments when they are called, and for that parses
its own source anew for each of them. Ours are checked before.
"""

from unittest.mock import patch

with patch("typeguard.typechecked", lambda function: function):
    import inflect

ENGINE = inflect.engine()

# Singulars that it takes for plurals ("lens" of "len", "regimen" of "regiman"), or makes men of.
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
