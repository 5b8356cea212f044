"""Recognise texts that share enough words with what they cite, in several languages."""

import datetime
from collections.abc import Mapping, Sequence

import pytest

from memory.project import EnumMember, RecordId
from memory.project.values import PartialDate, Value
from workers.findings import Finding
from workers.grounding.values_in_entries import Claim, Source
from workers.grounding.wording_in_entries import unsaid_texts

AT = datetime.datetime(2026, 3, 4, tzinfo=datetime.UTC)
JAZZ = "Paul likes jazz and cooks pasta"


def findings(
    said: str,
    fields: Mapping[str, Value],
    derived: Mapping[str, str] | None = None,
    *,
    speaker: str = "",
    is_new: bool = True,
) -> Sequence[Finding]:
    claim = Claim(RecordId("d", "c", "k"), [1], fields, derived or {}, is_new)
    return list(unsaid_texts([claim], {1: Source(1, said, AT, speaker=speaker)}, "UTC"))


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("I can't stand penicillin", "The user is allergic to penicillin."),
        ("I went to a support group yesterday", "Caroline attended a support group on 3 March."),
        ("Ich bin allergisch gegen Penicillin", "Die Nutzerin hat eine Allergie gegen Penicillin."),
        ("Nous partons à Rome en mai avec Zoé", "Zoé part à Rome en mai 2026."),
        ("Mi hermana vive en Córdoba", "La hermana de la usuaria vive en Cordoba."),
        ("Мы переезжаем в Москву", "Пользователь переезжает в Москву."),
        ("来月東京へ引っ越します", "ユーザーは2026年4月に東京へ引っ越す。"),
        ("Room 412, please", "The user has room 412."),
        ("OK 👍", "👍"),
        ("It is 1.", "it is 1"),
    ],
)
def test_text_that_is_said(said: str, text: str) -> None:
    assert findings(said, {"text": text}) == []


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (JAZZ, "The user is allergic to nsaid."),
        (JAZZ, "to be read and compared as such; what entries say is material"),
        (JAZZ, "and of the"),
        (JAZZ, "and"),
        (JAZZ, "s"),
        (JAZZ, "is of 2026-03-04 (Wednesday);"),
        (JAZZ, "👍"),
        ("Ich koche gern Nudeln", "Die Nutzerin hat eine Allergie gegen Penicillin."),
        ("来月東京へ引っ越します", "ユーザーは猫を飼っている。"),
        ("", "The user is well."),
    ],
)
def test_text_that_is_not(said: str, text: str) -> None:
    (finding,) = findings(said, {"text": text})
    assert (finding.code, finding.field, finding.blocking) == ("ungrounded_text", "text", True)
    assert "derived" in finding.fix


PRICE = "The vehicle that somebody in this family would like to buy is priced at 12,900."
GERMAN = "Ich fliege nächsten Freitag mit meiner Schwester Anna für zwölfhundert Euro nach Wien."


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (GERMAN, "On 2026-03-06 the user travels to Vienna by plane together with a relative."),
        (GERMAN, "The user has a sister, called Anna, and both of them travel to Austria soon."),
        (GERMAN, "A plane ticket that the user has bought for a trip abroad costs 1,200 euros."),
        (
            "来週の金曜日にローマへ行きます。",
            "The user will travel to Rome by train on 2026-03-13.",
        ),
        (
            "I fly to Rome this Friday with Paul.",
            "Am 6. März 2026 geht es per Flugzeug ins Ausland.",
        ),
        ("Стоит две тысячи пятьсот рублей.", "Das Fahrrad der Nutzerin hat 2.500 Rubel gekostet."),
        # So short that few words tell the language
        ("Das Auto kostet 12.900 Euro.", PRICE),
        ("Araba 12.900 lira tuttu.", PRICE),
        ("Samochód kosztuje 12.900 złotych.", PRICE),
        ("Auto maksaa 12.900 euroa.", PRICE),
        ("Coche nuevo: cuesta 12.900 euros.", PRICE),
        ("Bilen kostar 12.900 kronor.", PRICE),
        ("De auto kost twaalfhonderd euro.", PRICE.replace("12,900", "1,200")),
        ("Przedwczoraj przyszła paczka.", "Some delivery reached somebody on 2026-03-02."),
    ],
)
def test_translation_is_supported_by_its_values_and_counted(said: str, text: str) -> None:
    (finding,) = findings(said, {"text": text})
    assert (finding.code, finding.blocking) == ("translation", False)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        # Another day, another amount, another name; no value at all, and only the entry's day
        (GERMAN, "On 2026-03-07 the user travels to Vienna by plane together with a relative."),
        (GERMAN, "A plane ticket that the user has bought for a trip abroad costs 1,300 euros."),
        (GERMAN, "The user has a sister, called Paula, and both of them travel to Austria soon."),
        (GERMAN, "The user cannot stand noisy restaurants."),
        (GERMAN, "On 2026-03-04 the user bought a bicycle with electric support."),
        ("Das Auto kostet 11.900 Euro.", PRICE),
        ("Bilen kostar 13.900 kronor.", PRICE),
        ("Mom's new vehicle: 12,900.", PRICE.replace("vehicle", "bicycle")),
        # The entry's own language
        ("Paid 1200 euros.", "The rent that the user owes amounts to 1200 each month."),
        ("Ok, 12 pills left.", "The user has bought 12 bicycles with electric support."),
        ("Das Auto kostet 12.900 Euro.", "Eine Wohnung zahlt 12.900 Zinsen jährlich."),
        (GERMAN, "Die Katze der Nutzerin ist 1200 Gramm schwer, trächtig und sie hat Flöhe."),
    ],
)
def test_translation_of_something_else_is_refused(said: str, text: str) -> None:
    (finding,) = findings(said, {"text": text})
    assert (finding.code, finding.blocking) == ("ungrounded_text", True)


def test_speaker_and_date_count_as_stated() -> None:
    assert findings("Great!", {"text": "Gina is happy on March 4, 2026."}, speaker="Gina") == []


def test_translation_is_declared_and_reported() -> None:
    said = "Ich koche gern Nudeln"
    reason = {"text": "German: 'koche gern Nudeln'"}
    (finding,) = findings(said, {"text": "The user likes noodles."}, reason)
    assert (finding.code, finding.blocking) == ("paraphrase", False)
    assert "'koche gern Nudeln'" in finding.message


@pytest.mark.parametrize(
    ("said", "reason", "quotes"),
    [
        (JAZZ, "It says “likes JAZZ, and cooks”.", True),
        (JAZZ, "likes jazz", False),
        (JAZZ, "said in the session", False),
        ("That is what I have to do", "what I have to", False),
        ("Allergisch!", "allergisch is German", True),
        ("Yes", "yes", False),
        ("", "", False),
        ("来月東京へ引っ越します", "「東京へ引っ越」", True),
        ("来月東京へ引っ越します", "東京", False),
    ],
)
def test_reason_of_a_paraphrase_quotes_an_entry(said: str, reason: str, quotes: bool) -> None:
    (finding,) = findings(said, {"text": "must never eat strawberries"}, {"text": reason})
    assert finding.code == ("paraphrase" if quotes else "ungrounded_text")
    assert ("quotes none of them" in finding.message) is not quotes


@pytest.mark.parametrize(
    ("fields", "unsaid"),
    [
        # A label classifies the rest.
        ({"name": "jazz", "category": "music"}, []),
        ({"category": "music", "since": datetime.date(2026, 5, 8)}, []),
        ({"category": "music", "since": PartialDate("2025")}, []),
        # A record with nothing but labels has to be supported by them.
        ({"category": "drug", "severity": "high", "is_safe": True}, ["category", "severity"]),
        # Words of any text support nothing.
        ({"category": "and", "severity": "drug"}, ["category", "severity"]),
        ({"name": "jazz", "category": "and", "severity": "drug"}, []),
        # Every entry has a day.
        ({"category": "drug", "since": datetime.date(2026, 3, 4)}, ["category"]),
        ({"category": "drug", "at": AT}, ["category"]),
        ({"category": "drug", "since": PartialDate("2026-03")}, ["category"]),
        ({"kind": EnumMember("Kind", "DRUG")}, []),
        # A sentence must be supported by itself.
        ({"name": "jazz", "remark": "must never ever take penicillin again"}, ["remark"]),
    ],
)
def test_record_is_said_by_one_of_its_texts(fields: dict[str, Value], unsaid: list[str]) -> None:
    assert [finding.field for finding in findings(JAZZ, fields)] == unsaid


def test_label_that_is_updated_is_judged_as_an_update() -> None:
    assert findings(JAZZ, {"status": "done"}, is_new=False) == []
