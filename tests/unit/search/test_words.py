"""Splitting texts into terms."""

import datetime
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.recall.search.words import (
    best_part,
    identity,
    number_of_words,
    searchable_terms,
    terms,
    terms_by_language,
    terms_of_day,
    terms_of_names,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What was she running from?", ["run"]),
        ("Dave's dogs: they'll bark", ["dave", "dog", "bark"]),
        ("drug_class snake_case", ["drug", "class", "snake", "case"]),
        ("2026-03-01 and 2026-02-30", ["2026", "march", "1", "2026", "02", "30"]),
        ("2026-03-01T09:30+01:00", ["2026", "march", "1", "t09", "30", "01", "00"]),
        ("12026-03-01", ["12026", "03", "01"]),
        ("the 1st, 22nd, 3rd and 11th; 2ndary", ["1", "22", "3", "11", "2ndari"]),
        ("Café CAFÉ cafe\u0301", ["cafe", "cafe", "cafe"]),
        ("Straße STRASSE", ["strass", "strass"]),
        ("吉他", ["吉他"]),
        ("我爱吉他", ["我爱", "爱吉", "吉他"]),
        ("我", ["我"]),
        ("buy吉他now3", ["buy", "吉他", "now3"]),
        ("한국어", ["한국", "국어"]),
        ("किताब है।", ["किताब", "है"]),
        ("", []),
        ("… 🎸 _ \x00", []),
    ],
)
def test_terms_of_a_text(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


@pytest.mark.parametrize(
    "texts",
    [
        ["1,200", "1.200", "1'200", "1\u202f200", "١٢٠٠", "१२००", "１，２００"],
        ["مُحَمَّد", "محمد", "محـــمد"],
        ["İstanbul", "ISTANBUL", "ıstanbul"],
        ["Gru\u0308n", "gr\u00fcn", "grün\u200b"],
        ["ﾃﾞｰﾀ", "データ"],
        ["Ｔｏｋｙｏ", "tokyo"],
        ["favourites", "favorites"],
        ["neighbourhood", "neighborhood"],
        ["organisation", "organization"],
        ["analysed", "analyzed"],
        ["theatre", "theater"],
        ["travelling", "traveling"],
    ],
)
def test_spellings_of_a_word_are_one_term(texts: list[str]) -> None:
    assert len({terms(text)[-1] for text in texts}) == 1


def test_words_that_only_look_british_keep_their_own_terms() -> None:
    text = "flour floor paradise parade precise precisely raise"

    assert terms(text) == ["flour", "floor", "paradis", "parad", "precis", "precis", "rais"]


def test_number_in_groups_by_spaces_is_found_by_the_whole_and_its_parts() -> None:
    assert terms("1 200 Euro") == ["1", "200", "1200", "euro"]
    assert terms("050 123 4567, 12 34") == ["050", "123", "4567", "12", "34"]


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Die Rechnungen sind noch nicht bezahlt", "Wo ist die Rechnung?"),
        ("Nous avons mangé dans les restaurants", "Quel est le restaurant ?"),
        ("Mis hermanas no han venido", "¿Cómo está su hermana?"),
        ("Я не был в Москве", "Москва"),
        ("Olin eilen ja tänään talossa", "Missä on se talo?"),
        ("Ik heb de huizen niet gezien", "Waar is het huis?"),
        ("Bugün de kitaplar için geldim", "Hangi kitap için?"),
        ("أين وضعت الكتب", "كتب"),
        ("Vi har ikke sett bilene", "Hvor er bilen?"),
        ("Ich wohne in der Kölner Altstadt", "Köln"),
        ("Ich fahre morgen nach Köln", "Was ist mit der Kölner Wohnung?"),
        ("Мы живём в Москве", "Когда мы поедем в Москву?"),
        ("Я ще не прочитав ці книжки", "Де моя книжка?"),
        ("Nisam još vidio knjige, ali to je dobro", "Gdje je moja knjiga?"),
        ("Ešte som nevidel tie knihy, ale je to dobré", "Kde je moja kniha a čo je to?"),
        ("Dün İzmir'e gittik ve çok güzeldi", "İzmir"),
        ("İzmir", "Geçen yıl İzmir'de ne için kaldık?"),
    ],
)
def test_inflected_words_share_a_term_in_their_language(text: str, other: str) -> None:
    assert {*terms_by_language(text)[0]} & {*terms_by_language(other)[0]}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Ich fahre morgen nach Köln", "Kölner"),
        ("Byłam wczoraj z siostrą, to jest Warszawa", "Warszawie"),
        ("Vorige Woche war ich mit ihr in Wien", "Wiener Walzer"),
    ],
)
def test_inflected_name_alone_has_its_stem_in_other_languages(text: str, name: str) -> None:
    stems = {*terms_by_language(text)[0]}

    assert stems.isdisjoint(terms(name))
    assert stems & {*terms_of_names(name)}


def test_texts_with_other_words_than_names_have_no_stems_in_other_languages() -> None:
    for text in ("Who is the Londoner?", "Wer ist die Kölnerin?", "shower", "東京", "Москве"):
        assert terms_of_names(text) == []


def test_text_in_another_language_is_found_by_its_words_alone_as_well() -> None:
    own, others = terms_by_language("Die Rechnungen sind noch nicht bezahlt")

    assert own == ["rechnung", "bezahlt"]
    assert others == terms("Rechnungen")


def test_english_and_unrecognised_texts_have_the_same_terms_as_ever() -> None:
    for text in ("What was she running from?", "Rechnungen", "我爱吉他", "metformin 850 mg"):
        assert terms_by_language(text) == (terms(text), [])


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("猫", "我家有一只猫"),
        ("猫は？", "猫が好きです"),
        ("車はどこ？", "新しい車を買った"),
        ("我的猫在哪？", "我家有一只猫"),
        ("我的貓在哪裡？", "我家有一隻貓"),
        ("내 차는?", "새 차를 샀어요"),
        ("차", "새 차를 샀어요"),
    ],
)
def test_a_word_of_one_character_finds_texts_that_have_it(question: str, text: str) -> None:
    asked = {*chain(*terms_by_language(question))}

    assert asked & searchable_terms(text)
    assert asked.isdisjoint(searchable_terms("我爱吉他"))


def test_characters_that_carry_no_information_are_not_asked_for() -> None:
    assert terms_by_language("私の車は")[1] == ["車"]
    assert terms_by_language("他们为什么没有药？")[1] == ["药"]


def test_japanese_verbs_and_adjectives_are_not_asked_for_by_their_first_character() -> None:
    for question in ("昨日何を食べましたか", "どこに住んでいますか", "新しいですか", "落とした"):
        assert terms_by_language(question)[1] == []
    assert terms_by_language("肉を食べて、水も飲みますか")[1] == ["肉", "水"]


def test_a_day_has_the_terms_by_which_it_is_asked_for() -> None:
    day = datetime.date(2026, 10, 3)

    for text in ("3 October 2026", "October 3rd, 2026", "2026-10-03"):
        assert sorted(terms(text)) == sorted(terms_of_day(day))


@given(st.text())
def test_any_text_has_terms_that_are_found_again(text: str) -> None:
    for term in terms(text):
        assert 0 <= identity(term) < 2**63
        assert 0 < len(term) <= 64


@given(
    st.lists(
        st.sampled_from(["Tea", "Running", "PARIS", "1st", "2026-03-01", "it's", "x" * 70, "- "])
        | st.text(st.characters(max_codepoint=127), max_size=3)
    )
)
def test_terms_ignore_case(pieces: list[str]) -> None:
    text = " ".join(pieces)
    assert terms(text) == terms(text.upper()) == terms(text.lower())


@given(
    st.lists(
        st.sampled_from(["tea", "Paris", "1st", "2026-03-01", "x" * 70, "it's", "_", "-", "/", "7"])
        | st.text(st.characters(max_codepoint=127), max_size=3)
    )
)
def test_a_text_has_the_same_terms_whatever_script_another_word_is_in(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert terms(f"{text} ж") == [*terms(text), "ж"]


def test_a_long_word_is_cut() -> None:
    assert terms("x" * 1_000_000) == terms("x" * 64)


def test_words_are_counted_by_space_or_character() -> None:
    assert number_of_words("  three short words\n") == 3
    assert number_of_words("我爱 guitar") == 4
    assert number_of_words("") == 0


def test_best_part_of_a_short_text_is_all_of_it() -> None:
    assert best_part("short", ["none"], 10) == "short"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [(["puppi"], "puppy gh"), (["none"], "ab cd ef"), (["ij"], "pqr ij..")],
)
def test_best_part_of_a_long_text_has_most_terms(wanted: list[str], expected: str) -> None:
    assert best_part("ab cd ef puppy gh pqr ij..", wanted, 8) == expected


@pytest.mark.parametrize(
    ("text", "wanted", "expected"),
    [
        ("我们昨天在北京吃饭，后来我买了一把吉他。", "吉他", "吉他。"),
        ("我们昨天在北京吃饭，后来我买了一只猫。", "猫", "只猫。"),
        ("nothing here, and then on 2026-03-01 it began", "1 March", "2026-03-01 it"),
        ("Ein Tag und noch einer am CAFÉ im Park", "cafe", "CAFÉ im Park"),
    ],
)
def test_the_best_part_is_found_however_it_is_written(
    text: str, wanted: str, expected: str
) -> None:
    part = best_part(text, terms(wanted), len(expected))
    assert part == expected
