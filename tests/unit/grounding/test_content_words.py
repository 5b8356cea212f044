"""What two texts have in common, apart from words that any text may contain."""

import pytest

from workers.grounding.content_words import names_one_of


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Meine Frau hat nicht mit ihm gesprochen, weil er nicht da war", "Das ist nicht mein Rad"),
        ("Elle est avec nous, mais sans ses enfants", "Mes clés ne sont pas avec moi"),
        ("Está con nosotros desde hace una hora", "Esta tarde no estoy con ella"),
        ("Non sono mai stata nella casa della nonna", "La chiave non era nella tasca"),
        ("Ik heb het niet naar hem gestuurd", "Hij heeft het niet van mij"),
        ("Nie wiem, gdzie jest mój rower", "Mój brat nie jest jeszcze w domu"),
        ("Он не был у нас", "Она не сказала мне, что это было для нас"),
        ("Hon är inte med oss", "Jag har inte varit med henne"),
        ("هو في البيت مع أمي", "ذهبت مع أختي إلى السوق"),
    ],
)
def test_function_words_name_nothing(text: str, other: str) -> None:
    assert not names_one_of(text, [other])
    assert not names_one_of(other, [text])


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Meine Frau hat ein neues Rad", "Das Rad ist nicht da"),
        ("Мой отец был у нас", "Отец не сказал, что это для нас"),
        ("Моя мать живёт в Перми", "Это мать и её сестра"),
        ("Non mi piace la città", "La città non è grande"),
        ("No me gusta la sal", "Es un plato sin sal"),
    ],
)
def test_everyday_words_name_what_they_mean(text: str, other: str) -> None:
    assert names_one_of(text, [other])
    assert names_one_of(other, [text])
