"""Dates that a question names relative to today."""

import datetime
from zoneinfo import ZoneInfo

import pytest
import time_machine
from babel.dates import get_day_names
from django.utils import timezone
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.language.detection import LATIN
from memory.recall.search.question_dates import CAPITALISED, relative_dates_of
from tests.integration.search.conftest import Say

pytestmark = pytest.mark.django_db

OTHERS = ("en", "el", "ru", "uk", "bg", "sr", "mk")  # not in Latin letters, and English
# Sunday, 29 November in UTC, but already Monday in Tokyo.
NOW = datetime.datetime(2026, 11, 29, 20, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("question", "period"),
    [
        ("What did I say yesterday?", ("2026-11-28", "2026-11-28")),
        ("Was habe ich gestern gesagt?", ("2026-11-28", "2026-11-28")),
        ("昨日は何をしましたか", ("2026-11-28", "2026-11-28")),
        ("Что я делал вчера?", ("2026-11-28", "2026-11-28")),
        ("¿Qué dije la semana pasada?", ("2026-11-15", "2026-11-22")),
        ("Qu'est-ce que j'ai fait le mois dernier ?", ("2026-10-01", "2026-10-31")),
        ("What happened last year?", ("2025-01-01", "2025-12-31")),
        ("What did I do last Friday?", ("2026-11-20", "2026-11-27")),
        ("What happened in the last two weeks?", ("2026-11-15", "2026-11-29")),
        ("the past 3 days", ("2026-11-26", "2026-11-29")),
        ("Was ist in den letzten zwei Wochen passiert?", ("2026-11-15", "2026-11-29")),
        ("上个星期我做了什么？", ("2026-11-15", "2026-11-22")),
        ("पिछले हफ़्ते मैंने क्या किया?", ("2026-11-15", "2026-11-22")),
        ("What did I do last weekend?", ("2026-11-21", "2026-11-22")),
        ("Was habe ich am letzten Wochenende gemacht?", ("2026-11-21", "2026-11-22")),
        ("上周末我做了什么？", ("2026-11-21", "2026-11-22")),
        ("What did I do over the weekend?", ("2026-11-28", "2026-12-06")),
        ("Qu'ai-je fait ce week-end ?", ("2026-11-28", "2026-12-06")),
        ("Quel jour est mon anniversaire ?", None),
        ("Ma mère est-elle allée au marché ?", None),
        ("Who is Ann?", None),
        ("Where was I on 3 March 2026?", None),
    ],
)
def test_relative_dates_are_periods(
    user: MemoryUser, question: str, period: tuple[str, str] | None
) -> None:
    with time_machine.travel(NOW, tick=False):
        dates = relative_dates_of(question, user)

    assert (dates and (str(dates.first), str(dates.last))) == period


@pytest.mark.parametrize(
    ("days_ago", "questions"),
    [
        (1, ("gestern", "hier", "ayer", "mañana, ayer o hoy", "ontem", "wczoraj", "dün", "i går")),
        (1, ("昨日", "昨天", "어제", "вчера", "вчора", "أمس", "אתמול", "कल", "hôm qua")),
        (-2, ("übermorgen", "après-demain", "overmorgen", "послезавтра", "明後日")),
        (2, ("Co jadłem przedwczoraj?", "üleeile", "aizvakar", "užvakar", "predvčerajšnjim")),
        (7, ("letzte Woche", "Was war letzte Woche?", "la semaine dernière", "semana passada")),
        (1, ("man\u0303ana, ayer o hoy", "hier", "u\u0308bermorgen oder gestern")),
        (7, ("w zeszłym tygodniu", "geçen hafta", "先週", "上周", "săptămâna trecută")),
    ],
)
def test_words_for_a_date_tell_their_own_language(
    user: MemoryUser, days_ago: int, questions: tuple[str, ...]
) -> None:
    day = NOW.date() - datetime.timedelta(days=days_ago)
    for question in questions:
        dates = relative_dates_of(question, user, NOW)

        assert dates is not None, question
        assert dates.first <= day <= dates.last, question
        assert dates.last - dates.first <= datetime.timedelta(days=7), question


@pytest.mark.parametrize(
    "question",
    [
        "Wer wohnt hier?",  # French "hier": yesterday
        "Ist das Restaurant hier gut?",
        "Does Marti like tea?",  # Romanian "marți": Tuesday
        "Is Morgen a good name?",  # German: tomorrow
        "Who is Ieri?",  # Italian: yesterday
        "¿Quién es Marti?",
        "Où habite Morgen ?",
        "Quel jour est mon anniversaire ?",  # French "mon": my
        "Qui va au marché avec moi ?",
        "¿Quién es Domingo?",
        "Chi è Sabato Rossi?",
        "Où habite monsieur Mardi ?",
        "Кто такая Вера Среда?",
        "Ist Frau Samstag da?",
        "Wie alt ist Herr Sonntag?",
        "Who is Wednesday Addams?",
        "Has Mr Friday called?",
        "When is Black Friday?",
        "What did I buy on Black Friday?",
        "Who is Joe Friday?",
        "Wo wohnt die Familie Montag?",
    ],
)
def test_name_or_word_that_is_a_date_in_another_language_is_no_date(
    user: MemoryUser, question: str
) -> None:
    assert relative_dates_of(question, user, NOW) is None


@pytest.mark.parametrize(
    "question",
    [
        "Did I see Ann on Friday?",
        "Was it on Friday Ann came?",
        "What did I do Friday?",
        "What did I do on Friday Night?",
        "Was mache ich nächsten Freitag?",
        "Hatte ich einen Termin Montag?",
        "¿Qué hice el domingo?",
        "Domingo, ¿qué hice?",
        "QUÉ HICE AYER",
        "Did I see Ann Friday?",
        "Did I go to Costco Saturday?",
        "¿Qué hice el Domingo?",
        "El Domingo, ¿qué hice?",
        "Qu'est-ce que j'ai fait le Vendredi ?",
        "Что я делал в Среду?",
        "Co robiłem w Piątek?",
        "Hat meine Frau gestern angerufen?",
        "War ich mit meiner Familie gestern essen?",
        "Hat meine Frau Freitag frei?",
        "Was sagte der Prof gestern?",
        "我在 Costco上周买了什么？",
        "我在Costco上周买了什么？",
        "私は Costco先週行きましたか。",
    ],
)
def test_day_beside_a_name_or_with_capitals_is_a_date(user: MemoryUser, question: str) -> None:
    assert relative_dates_of(question, user, NOW) is not None


def test_languages_that_capitalise_weekdays_are_those_of_cldr() -> None:
    days = {code: get_day_names(locale={"tl": "fil"}.get(code, code)) for code in (*LATIN, *OTHERS)}

    assert {code for code, names in days.items() if names[0][0].isupper()} == CAPITALISED


def test_a_question_about_another_time_is_relative_to_it(user: MemoryUser) -> None:
    dates = relative_dates_of("¿Qué dije ayer?", user, NOW)

    assert dates is not None
    assert dates.to_json() == {"first": "2026-11-28", "last": "2026-11-28"}


def test_days_are_those_of_the_users_time_zone(user: MemoryUser) -> None:
    user.time_zone = "Asia/Tokyo"
    with time_machine.travel(NOW, tick=False):
        dates = relative_dates_of("What did I say yesterday?", user)

    assert dates is not None
    assert dates.first == datetime.date(2026, 11, 29)
    assert dates.terms == ["2026", "novemb", "29"]


@pytest.mark.parametrize("question", ["Was habe ich gestern gemacht?", "What did I do yesterday?"])
def test_entries_of_the_day_are_found_and_the_answer_says_which(
    api: APIClient, user: MemoryUser, say: Say, question: str
) -> None:
    today = timezone.now().astimezone(ZoneInfo(user.time_zone)).replace(hour=12)
    for days in range(20):
        at = today - datetime.timedelta(days=days)
        say(f"Entry{days}x", occurred_at=at, session_id=str(days))
    answer = api.post("/v1/users/ada/search/", {"query": question}).data
    none = api.post("/v1/users/ada/search/", {"query": "entry"}).data
    context = api.post("/v1/users/ada/context/", {"query": question}).data

    yesterday = str(today.date() - datetime.timedelta(days=1))
    assert answer["hits"][0]["text"] == "Entry1x"
    assert answer["dates"] == context["dates"] == {"first": yesterday, "last": yesterday}
    assert none["dates"] is None
