"""inflect, a library for English plurals, imported without its argument type checks.

inflect adds these checks with a decorator, and each use of the decorator reparses inflect's source,
which would make the import take seconds. We check our arguments ourselves.
"""

from unittest.mock import patch

with patch("typeguard.typechecked", lambda function: function):
    import inflect

ENGINE = inflect.engine()

# Singular nouns that inflect mistakes for plurals ("lens" as the plural of "len", "regimen" as the
# plural of "regiman") or pluralises as if they were compounds of "man".
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
