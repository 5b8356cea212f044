"""What entries in other languages than English say is read, and nothing else is."""

import datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.language.detection import language_of, languages_of, may_be_english
from memory.language.lexicon import lexicon_of
from memory.language.translation import in_english, restated
from memory.project import PartialDate
from memory.project.values import Value
from tests.unit.language.sentences import AT, LANGUAGES, is_refused, sentences


@pytest.mark.parametrize("code", LANGUAGES)
def test_true_facts_are_grounded_and_false_ones_refused(code: str) -> None:
    table = list(sentences(code))
    refused = [(one.text, one.true) for one in table if is_refused(one.text, one.true)]
    accepted = [(one.text, one.false) for one in table if not is_refused(one.text, one.false)]

    assert len(table) > 25
    assert (refused, accepted) == ([], [])


def test_the_table_is_large() -> None:
    assert len(LANGUAGES) > 20
    assert sum(len(list(sentences(code))) for code in LANGUAGES) > 900


@pytest.mark.parametrize("code", LANGUAGES)
def test_the_language_of_a_sentence_is_among_the_likely_ones(code: str) -> None:
    expected = {code, "no"} if code == "da" else {code}
    phrases = LANGUAGES[code].relative.split(" | ")
    guesses = [set(languages_of(phrase)) for phrase in phrases]

    assert sum(not guess & expected for guess in guesses) <= 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # A fact in the language of its message, with the date that is relative there
        ("Ich fliege nächsten Freitag nach Rom.", "Flug nach Rom am 6. März 2026"),
        ("Je pars demain pour Rome.", "Départ pour Rome le 5 mars 2026"),
        ("来週の金曜日にローマへ行きます。", "2026年3月13日にローマへ"),
        ("あさって大阪に着きます。", datetime.date(2026, 3, 6)),
        ("おととい車が壊れました。", datetime.date(2026, 3, 2)),
        # Number words in a text
        ("Das kostet zwölfhundert Euro.", "kostet 1.200 Euro"),
        ("Стоит две тысячи пятьсот рублей.", "2500 рублей"),
        ("我要三百块。", "300块"),
        ("एक टिकट १२०० रुपये का है", 1200),
        ("التذكرة ١٢٠٠ يورو", 1200),
        # A fact in another language than its message
        ("Mein Flug nach Rom geht am 5. Mai 2026 um 20 Uhr 30.", "Flight to Rome on May 5, 2026"),
    ],
)
def test_texts_are_compared_across_languages(text: str, value: Value) -> None:
    assert not is_refused(text, value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Ich fliege nächsten Freitag nach Rom.", "Flug nach Rom am 7. März 2026"),
        ("Das kostet zwölfhundert Euro.", "kostet 1.300 Euro"),
        ("Termin am 2. Mai 2026", datetime.date(2026, 6, 2)),
        ("Ich war drei Tage in Rom.", datetime.date(2026, 3, 1)),
        ("مائة يورو", 1000),
    ],
)
def test_other_values_are_refused(text: str, value: Value) -> None:
    assert is_refused(text, value)


@pytest.mark.parametrize(
    ("text", "true", "false"),
    [
        ("Übernächste Woche fängt es an.", datetime.date(2026, 3, 16), datetime.date(2026, 3, 10)),
        (
            "Donnerstag in zwei Wochen kommen die Handwerker.",
            datetime.date(2026, 3, 19),
            datetime.date(2026, 3, 26),
        ),
        ("La semana que viene empiezo.", datetime.date(2026, 3, 9), datetime.date(2026, 3, 17)),
        ("再来月に結婚します。", PartialDate("2026-05"), PartialDate("2026-04")),
        ("وصل الطرد أول أمس.", datetime.date(2026, 3, 2), datetime.date(2026, 3, 3)),
        ("两个星期前我发烧了。", datetime.date(2026, 2, 18), datetime.date(2026, 2, 25)),
        ("दो हफ़्ते पहले मुझे बुख़ार था।", datetime.date(2026, 2, 18), datetime.date(2026, 2, 25)),
        ("열흘 후에 부산에 가요.", datetime.date(2026, 3, 14), datetime.date(2026, 3, 11)),
        ("Pierwszego listopada jedziemy.", PartialDate("2026-11-01"), PartialDate("2026-11-02")),
        ("دفعت ألفاً ومئتين وخمسين ديناراً.", 1250, 2000),
        ("Я заплатив тисячу двісті п'ятдесят гривень.", 1250, 250),
        ("家は1億2千万円です。", 120_000_000, 100_000_000),
        ("गाड़ी डेढ़ लाख रुपये की है।", 150_000, 100_000),
        ("Das Haus kostet 3,5 Millionen Euro.", 3_500_000, 35),
        ("Квартира стоит сорок пять тысяч рублей.", 45_000, 5_000),
        ("Harganya enam puluh lima ribu rupiah.", 65_000, 5_000),
        ("A laptop kétszázötvenezer forintba került.", 250_000, 50_000),
        ("这套房二百五十万元。", 2_500_000, 500_000),
        ("Le terrain vaut deux cent cinquante mille euros.", 250_000, 50_000),
        ("اشتريت الثلاجة بثلاثة آلاف وخمسمائة درهم.", 3_500, 3_000),
        ("Ba tuần trước tôi bị ốm.", datetime.date(2026, 2, 11), datetime.date(2026, 2, 23)),
        ("สองเดือนที่แล้วฉันย้ายบ้าน", PartialDate("2026-01"), PartialDate("2026-02")),
        ("Tiga minggu lalu saya sakit.", datetime.date(2026, 2, 11), datetime.date(2026, 2, 23)),
        ("Gasté 500 el mes pasado.", PartialDate("2026-02"), PartialDate("1984-07")),
        ("Поезд уходит без двадцати пять.", datetime.time(16, 40), datetime.time(17)),
        ("Ich brauche ein Dutzend Eier.", 12, 20),
        ("下个月五号我去上海。", datetime.date(2026, 4, 5), datetime.date(2026, 4, 6)),
        ("来月5日に京都へ行きます。", datetime.date(2026, 4, 5), datetime.date(2026, 4, 6)),
        ("다음 달 5일에 부산에 가요.", datetime.date(2026, 4, 5), datetime.date(2026, 4, 6)),
        ("We hebben drieënhalve kilo kaas gekocht.", Decimal("3.5"), 3),
        (
            "女儿二零一九年二月二十三日出生。",
            datetime.date(2019, 2, 23),
            datetime.date(2018, 2, 23),
        ),
    ],
)
def test_what_a_phrase_says_as_a_whole_counts_and_no_part_of_it(
    text: str, true: Value, false: Value
) -> None:
    assert not is_refused(text, true)
    assert is_refused(text, false)


@pytest.mark.parametrize(
    "text",
    [
        "Last weekend we were in Bath.",
        "Am letzten Wochenende waren wir in Köln.",
        "Le week-end dernier, nous étions à Lyon.",
        "El fin de semana pasado estuvimos en Toledo.",
        "Lo scorso weekend siamo stati a Roma.",
        "No fim de semana passado fomos à praia.",
        "Vorig weekend waren we in Gent.",
        "Afgelopen weekend waren we in Gent.",
        "Förra helgen var vi i Lund.",
        "I sidste weekend var vi i Aarhus.",
        "Viime viikonloppuna olimme mökillä.",
        "W zeszły weekend byliśmy w górach.",
        "Minulý víkend jsme byli na chatě.",
        "В прошлые выходные мы были на даче.",
        "Минулими вихідними ми були на дачі.",
        "Geçen hafta sonu Bursa'daydık.",
        "Múlt hétvégén a Balatonnál voltunk.",
        "Weekendul trecut am fost la mare.",
        "في عطلة نهاية الأسبوع الماضية كنا عند البحر.",
        "בסוף השבוע שעבר היינו בים.",
        "पिछले सप्ताहांत हम आगरा गए थे।",
        "先週末、温泉に行きました。",
        "지난 주말에 등산을 갔어요.",
        "上周末我们去爬山了。",
        "上个周末我们去爬山了。",
        "สุดสัปดาห์ที่แล้วเราไปทะเล",
        "Cuối tuần trước chúng tôi đi biển.",
        "Akhir pekan lalu kami pergi ke Bandung.",
    ],
)
def test_last_weekend_is_the_one_before_this_week(text: str) -> None:
    days = [datetime.date(2026, 2, day) for day in (22, 26, 28)]

    assert [is_refused(text, day) for day in days] == [True, True, False]
    assert not is_refused(text, datetime.date(2026, 3, 1))


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("في عطلة نهاية الأسبوع الماضية كنا عند البحر.", 27),
        ("בסוף השבוע שעבר היינו בים.", 27),
        ("آخر هفته گذشته به شمال رفتیم.", 26),
    ],
)
def test_weekends_begin_earlier_in_some_languages(text: str, first: int) -> None:
    days = [datetime.date(2026, 2, day) for day in range(first - 1, 29)]

    assert [is_refused(text, day) for day in days] == [True, *[False] * (28 - first + 1)]
    assert not is_refused(text, datetime.date(2026, 3, 1))


@pytest.mark.parametrize(
    ("text", "true", "false"),
    [
        (
            "เราแต่งงานกันเมื่อวันที่ 20 มิถุนายน 2564",
            datetime.date(2021, 6, 20),
            datetime.date(2020, 6, 20),
        ),
        ("ฉันเรียนจบปี พ.ศ. 2564", PartialDate("2021"), PartialDate("2020")),
        ("ตั๋วราคา 2564 บาท", 2564, 2021),
        ("จ่ายเมื่อวาน 2564 บาท", 2564, 2021),
        ("เมื่อวาน 2564บาท", 2564, PartialDate("2021")),
        ("令和3年6月20日に結婚しました。", datetime.date(2021, 6, 20), datetime.date(2020, 6, 20)),
        ("平成元年に生まれました。", PartialDate("1989"), PartialDate("1990")),
        ("昭和五十二年に家を建てた。", PartialDate("1977"), PartialDate("1976")),
        ("民國110年6月20日我們結婚。", datetime.date(2021, 6, 20), datetime.date(2010, 6, 20)),
    ],
)
def test_years_of_other_eras_are_read(text: str, true: Value, false: Value) -> None:
    assert not is_refused(text, true)
    assert is_refused(text, false)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Де моя книжка?", "uk"),
        ("Що було, коли ми спали?", "uk"),
        ("Ми були там", "uk"),
        ("Где моя книга?", "ru"),
        ("Я купил собаку", "ru"),
        ("Мы были в парке, а потом дома.", "ru"),
    ],
)
def test_ukrainian_is_told_from_russian_by_its_words(text: str, language: str) -> None:
    assert language_of(text) == language


def test_english_is_read_without_other_languages() -> None:
    assert languages_of("I fly to Rome on the first Friday of next month.") == ("en",)
    assert not list(in_english("I fly to Rome on the first Friday of next month."))
    assert not list(in_english("12 / 24"))


def test_a_class_named_like_a_function_word_tells_no_other_language() -> None:
    for record in ("Cat pets Cat: name: Pipoca", "Van vehicle Van: fuel: diesel", "Son family Son"):
        assert may_be_english(record)


@given(
    st.sampled_from([*LANGUAGES]), st.text(alphabet="日月前後三百 zweivorTage1.,:５ىىو") | st.text()
)
def test_no_text_is_too_odd(code: str, text: str) -> None:
    if (lexicon := lexicon_of(code)) is not None:
        restated(text, lexicon)
    list(in_english(text))


@pytest.mark.parametrize(
    "text",
    [
        # Words that are spelt like a short name of a month: August, December, March, April …
        "Moja siostra źle się czuje i nie mogę spać.",
        "Koupil jsem dárek pro maminku.",
        "Már nem szeretem a kávét.",
        "Jag tror att hon mår bra.",
        "Me gusta el mar y la montaña con mi hermana.",
        "Gosto do mar e da montanha com minha irmã.",
        "Ho messo il set di piatti sul tavolo.",
        "Sora mea nu bea cafea și îi place marea.",
        "Moja sestra voli kavu i more, a ja tražim posao.",
        # … in English: Monday, March, Friday, Saturday, Sunday
        "Mon fils est né ici et il est très gentil.",
        "Ma mère est allée au marché avec moi.",
        "Mon frère est monégasque et il est très gentil.",
        "Jag är fri och har en bil som är röd.",
        "Meine Schwester sagt, sie sat und sun sind keine Wörter.",
        # Others
        "Ahora mismo no puedo ir porque tengo que trabajar.",
        "Ich habe mit der Katze gespielt, und das ist gut so.",
        "Mijn zus houdt niet van koffie en dat is goed.",
        "Siskoni pitää kahvista ja hän on hyvä.",
        "Kesä on ihana, ja heinä kasvaa.",
        "Мне нравится, когда тихо.",
        "Мені подобається, коли тихо.",
        "Kız kardeşim kahve sevmez ve deniz sever.",
        "أختي تحب القهوة والبحر كثيرا.",
        "אחותי אוהבת קפה ואת הים.",
        "मेरी बहन को कॉफ़ी पसंद है।",
        "妹はコーヒーが好きです。",
        "我妹妹喜欢喝咖啡。",
        "我觉得一般，有一点累。",
        "제 여동생은 커피를 좋아해요.",
        "น้องสาวของฉันชอบกาแฟ",
        "Adik saya suka kopi dan laut.",
    ],
)
def test_a_sentence_without_a_date_supports_none(text: str) -> None:
    months = [PartialDate(f"2026-{month:02}") for month in range(1, 13) if month != AT.month]
    days = [AT.date() + datetime.timedelta(days) for days in range(-14, 15) if days]
    times = [datetime.time(hour) for hour in range(24)]
    values: list[Value] = [*months, *days, *times]
    assert [value for value in values if not is_refused(text, value)] == []


@pytest.mark.parametrize(
    ("text", "month"),
    [
        ("Wesele jest 12 sie, a potem nic.", 8),
        ("El concierto es el 5 de mar en la plaza.", 3),
        ("Svatba je 5. pro v Praze, moc se těším.", 12),
        ("La réunion est mon 5 mar. avec le chef.", 3),
        ("Wir heiraten im Mai, und das ist gut so.", 5),
        ("Nous partons en mai avec les enfants.", 5),
        ("Мы едем к морю в мае, и это хорошо.", 5),
    ],
)
def test_a_short_month_counts_beside_a_number_and_a_whole_one_by_itself(
    text: str, month: int
) -> None:
    assert not is_refused(text, PartialDate(f"2026-{month:02}"))


@pytest.mark.parametrize(
    "text",
    [
        "We walked on 8 and 9 March 2025.",
        "Den Steig bin ich am 8. und 9. März 2025 gegangen.",
        "Am Wochenende 8./9. März 2025 waren wir dort.",
        "Der Kurs geht vom 8. bis 9. März 2025.",
        "Nous y étions le 8 et le 9 mars 2025.",
        "Estuvimos allí el 8 y 9 de marzo de 2025.",
        "Il corso va dall'8 al 9 marzo 2025.",
        "Estivemos lá nos dias 8 e 9 de março de 2025.",
        "Op 8 en 9 maart 2025 waren we daar.",
        "Byliśmy tam 8 i 9 marca 2025.",
        "Мы были там 8-9 марта 2025 года.",
        "Olimme siellä 8. ja 9. maaliskuuta 2025.",
        "8 ve 9 Mart 2025 tarihlerinde oradaydık.",
        "كنا هناك في 8 و9 مارس 2025.",
        "हम 8 और 9 मार्च 2025 को वहाँ थे।",
        "2025年3月8日和9日我们在那里。",
        "我们在那里是2025年3月8、9日。",
        "二〇二五年三月八日和九日我们在那里。",
        "2025年3月8日と9日にそこにいました。",
        "2025年3月8日・9日にそこにいました。",
        "2025년 3월 8일과 9일에 거기 있었어요.",
        "2025년 3월 8, 9일에 거기 있었어요.",
    ],
)
def test_several_days_of_a_month_are_all_days(text: str) -> None:
    days = (datetime.date(2025, 3, day) for day in (7, 8, 9, 10))

    assert [is_refused(text, day) for day in days] == [True, False, False, True]
    assert is_refused(text, datetime.time(8))
