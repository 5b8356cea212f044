"""Halves and quarters of hours, and of other numbers, and minutes are read in each language."""

import datetime
from collections.abc import Mapping
from decimal import Decimal

import pytest

from memory.project.values import Value
from tests.unit.language.sentences import is_refused

HALF_PAST_SEVEN: Mapping[str, str] = {
    "ar": "نلتقي الساعة السابعة والنصف.",
    "bg": "Ще се видим в седем и половина.",
    "ca": "Ens veiem a les set i mitja. | Ens trobem a dos quarts de vuit.",
    "cs": "Sejdeme se v půl osmé.",
    "da": "Vi ses klokken halv otte.",
    "de": "Wir treffen uns um halb acht.",
    "el": "Θα βρεθούμε στις επτά και μισή.",
    "es": "Quedamos a las siete y media.",
    "et": "Kohtume homme kell pool kaheksa.",
    "fa": "ساعت هفت و نیم همدیگر را می‌بینیم.",
    "fi": "Tavataan puoli kahdeksalta.",
    "fr": "On se retrouve à sept heures et demie.",
    "he": "ניפגש בשבע וחצי.",
    "hi": "हम शाम को साढ़े सात बजे मिलते हैं।",
    "hr": "Vidimo se u sedam i pol.",
    "hu": "Fél nyolckor találkozunk.",
    "id": "Kita bertemu jam setengah delapan.",
    "it": "Ci vediamo alle sette e mezza.",
    "ja": "七時半に会いましょう。",
    "ko": "일곱 시 반에 만나요.",
    "lv": "Mēs tiekamies rīt pusastoņos.",
    "nl": "We spreken af om half acht.",
    "no": "Vi møtes klokken halv åtte.",
    "pl": "Spotkajmy się o wpół do ósmej.",
    "pt": "Encontramo-nos às sete e meia.",
    "ro": "Ne vedem la șapte și jumătate.",
    "ru": "Встретимся в половине восьмого. | Мы встретимся в полвосьмого.",
    "sk": "Stretneme sa o pol ôsmej.",
    "sr": "Видимо се сутра у пола осам.",
    "sv": "Vi ses halv åtta.",
    "th": "เจอกันตอนเจ็ดโมงครึ่ง | เจอกันตอนหนึ่งทุ่มครึ่ง",
    "tr": "Saat yedi buçukta buluşalım.",
    "uk": "Зустрінемося о пів на восьму.",
    "vi": "Gặp nhau lúc bảy giờ rưỡi.",
    "zh": "我们七点半见面。",
}
QUARTER_TO_EIGHT: Mapping[str, str] = {
    "ar": "نلتقي الساعة الثامنة إلا ربعاً.",
    "bg": "Ще се видим в осем без четвърт.",
    "cs": "Sejdeme se ve tři čtvrtě na osm.",
    "da": "Vi ses kvart i otte.",
    "de": "Wir treffen uns um Viertel vor acht. | Wir treffen uns um drei viertel acht.",
    "el": "Θα βρεθούμε στις οκτώ παρά τέταρτο.",
    "es": "Quedamos a las ocho menos cuarto. | Quedamos a un cuarto para las ocho.",
    "fi": "Tavataan varttia vaille kahdeksan.",
    "fr": "On se retrouve à huit heures moins le quart.",
    "he": "ניפגש ברבע לשמונה.",
    "hi": "हम पौने आठ बजे मिलते हैं।",
    "hu": "Háromnegyed nyolckor találkozunk.",
    "id": "Kita bertemu jam delapan kurang seperempat.",
    "it": "Ci vediamo alle otto meno un quarto.",
    "ja": "七時四十五分に会いましょう。",
    "nl": "We spreken af om kwart voor acht.",
    "no": "Vi møtes kvart på åtte.",
    "pl": "Spotkajmy się za kwadrans ósma.",
    "pt": "Encontramo-nos às oito menos um quarto. | Encontramo-nos a um quarto para as oito.",
    "ro": "Ne vedem la opt fără un sfert.",
    "ru": "Встретимся без четверти восемь.",
    "sk": "Stretneme sa o trištvrte na osem.",
    "sv": "Vi ses kvart i åtta.",
    "tr": "Sekize çeyrek kala buluşalım.",
    "uk": "Зустрінемося за чверть восьма.",
    "vi": "Gặp nhau lúc tám giờ kém mười lăm.",
    "zh": "我们七点三刻见面。 | 我们差一刻八点见面。",
}
QUARTER_PAST_EIGHT: Mapping[str, str] = {
    "ar": "نلتقي الساعة الثامنة والربع.",
    "bg": "Ще се видим в осем и четвърт.",
    "cs": "Sejdeme se ve čtvrt na devět.",
    "da": "Vi ses kvart over otte.",
    "de": "Wir treffen uns um Viertel nach acht. | Wir treffen uns um viertel neun.",
    "el": "Θα βρεθούμε στις οκτώ και τέταρτο.",
    "es": "Quedamos a las ocho y cuarto.",
    "fi": "Tavataan varttia yli kahdeksan.",
    "fr": "On se retrouve à huit heures et quart.",
    "he": "ניפגש בשמונה ורבע.",
    "hi": "हम सवा आठ बजे मिलते हैं।",
    "hu": "Negyed kilenckor találkozunk.",
    "id": "Kita bertemu jam delapan lewat seperempat.",
    "it": "Ci vediamo alle otto e un quarto.",
    "nl": "We spreken af om kwart over acht.",
    "no": "Vi møtes kvart over åtte.",
    "pl": "Spotkajmy się kwadrans po ósmej.",
    "pt": "Encontramo-nos às oito e um quarto.",
    "ro": "Ne vedem la opt și un sfert.",
    "ru": "Встретимся в четверть девятого.",
    "sv": "Vi ses kvart över åtta.",
    "tr": "Sekizi çeyrek geçe buluşalım.",
    "uk": "Зустрінемося о чверть на дев'яту.",
    "zh": "我们八点一刻见面。",
}
TEN_PAST_EIGHT: Mapping[str, str] = {
    "ar": "نلتقي الساعة الثامنة وعشر دقائق.",
    "bg": "Ще се видим в осем и десет.",
    "ca": "Ens veiem a les vuit i deu.",
    "cs": "Sejdeme se v osm hodin deset minut.",
    "da": "Vi ses klokken ti over otte. | Vi ses klokken ti minutter over otte.",
    "de": "Wir treffen uns um zehn nach acht. | Wir treffen uns zehn Minuten nach acht."
    " | Wir treffen uns um acht Uhr zehn.",
    "el": "Θα βρεθούμε στις οκτώ και δέκα.",
    "es": "Quedamos a las ocho y diez. | A las ocho y diez llega el tren.",
    "et": "Kohtume kell kaheksa kümme.",
    "fa": "ساعت هشت و ده دقیقه همدیگر را می‌بینیم.",
    "fi": "Tavataan kymmenen yli kahdeksan. | Tavataan kello kahdeksan kymmenen.",
    "fr": "On se retrouve à huit heures dix.",
    "he": "ניפגש בשמונה ועשר דקות.",
    "hi": "हम आठ बजकर दस मिनट पर मिलते हैं।",
    "hu": "Nyolc óra tíz perckor találkozunk.",
    "id": "Kita bertemu jam delapan lewat sepuluh.",
    "it": "Ci vediamo alle otto e dieci.",
    "ja": "八時十分に会いましょう。",
    "ko": "여덟 시 십 분에 만나요.",
    "nl": "We spreken af om tien over acht.",
    "no": "Vi møtes ti over åtte.",
    "pl": "Spotkajmy się dziesięć po ósmej. | Spotkajmy się o ósmej dziesięć.",
    "ro": "Ne vedem la opt și zece.",
    "ru": "Встретимся в восемь десять.",
    "sk": "Stretneme sa o ôsmej desať.",
    "sv": "Vi ses tio över åtta.",
    "th": "เจอกันแปดโมงสิบนาที",
    "tr": "Sekizi on geçe buluşalım. | Saat sekiz onda buluşalım.",
    "uk": "Зустрінемося десять по восьмій. | Зустрінемося о восьмій десять.",
    "vi": "Gặp nhau lúc tám giờ mười.",
    "zh": "我们八点十分见面。",
}
TEN_TO_EIGHT: Mapping[str, str] = {
    "cs": "Sejdeme se za deset osm.",
    "da": "Vi ses ti minutter i otte. | Vi ses ti i otte.",
    "de": "Wir treffen uns um zehn vor acht. | Wir treffen uns zehn Minuten vor acht.",
    "es": "Quedamos a las ocho menos diez.",
    "fi": "Tavataan kymmenen vaille kahdeksan.",
    "fr": "On se retrouve à huit heures moins dix.",
    "it": "Ci vediamo alle otto meno dieci.",
    "nl": "We spreken af om tien voor acht.",
    "no": "Vi møtes ti på åtte.",
    "pl": "Spotkajmy się za dziesięć ósma.",
    "pt": "Encontramo-nos às oito menos dez.",
    "ru": "Встретимся без десяти восемь.",
    "sk": "Stretneme sa za desať osem.",
    "sv": "Vi ses tio i åtta.",
    "tr": "Sekize on kala buluşalım. | Sekize on var.",
    "uk": "Зустрінемося за десять восьма.",
}
TWENTY_PAST_EIGHT: Mapping[str, str] = {
    "ar": "نلتقي الساعة الثامنة وعشرين دقيقة.",
    "bg": "Ще се видим в осем и двадесет.",
    "de": "Wir treffen uns um zwanzig nach acht.",
    "es": "Quedamos a las ocho y veinte.",
    "it": "Ci vediamo alle otto e venti.",
    "pt": "Encontramo-nos às oito e vinte.",
    "ro": "Ne vedem la opt și douăzeci.",
    "ru": "Встретимся в восемь двадцать.",
}
ONE_AND_A_HALF: Mapping[str, str] = {
    "ar": "استغرق الأمر ساعة ونصف.",
    "cs": "Trvá to jednu a půl hodiny.",
    "da": "Det varer halvanden time.",
    "de": "Das dauert anderthalb Stunden. | Ich brauche eineinhalb Liter Milch.",
    "el": "Διαρκεί μιάμιση ώρα.",
    "es": "Dura una hora y media.",
    "fi": "Osta puolitoista litraa maitoa.",
    "fr": "Ça dure une heure et demie.",
    "he": "זה לוקח שעה וחצי.",
    "hi": "डेढ़ किलो आटा चाहिए।",
    "hu": "Másfél liter tej kell.",
    "id": "Saya beli satu setengah kilo beras.",
    "it": "Dura un'ora e mezza.",
    "ja": "一時間半かかります。",
    "ko": "한 시간 반 걸려요.",
    "nl": "Het duurt anderhalf uur. | We kochten anderhalve kilo kaas.",
    "no": "Det varer halvannen time.",
    "pl": "Kup półtora litra mleka.",
    "pt": "Dura uma hora e meia.",
    "ro": "Durează o oră și jumătate.",
    "ru": "Это займёт полтора часа.",
    "sv": "Det tar en och en halv timme.",
    "th": "ใช้เวลาหนึ่งชั่วโมงครึ่ง",
    "tr": "Bir buçuk saat sürüyor.",
    "uk": "Це триває півтори години.",
    "vi": "Mất một tiếng rưỡi.",
    "zh": "需要一个半小时。",
}


def _rows(table: Mapping[str, str]) -> list[str]:
    return [text for texts in table.values() for text in texts.split(" | ")]


def _accepted_hours(text: str) -> list[int]:
    hours = (7, 8, 9, 19, 20)  # those beside the ones that are meant
    return [hour for hour in hours if not is_refused(text, datetime.time(hour))]


@pytest.mark.parametrize("text", _rows(HALF_PAST_SEVEN))
def test_half_an_hour_is_past_the_hour_or_to_it(text: str) -> None:
    assert not is_refused(text, datetime.time(19, 30)) or not is_refused(text, datetime.time(7, 30))
    assert is_refused(text, datetime.time(20, 30))
    assert _accepted_hours(text) == []


@pytest.mark.parametrize("text", _rows(QUARTER_TO_EIGHT))
def test_a_quarter_to_the_hour(text: str) -> None:
    assert not is_refused(text, datetime.time(7, 45))
    assert is_refused(text, datetime.time(8, 15))
    assert _accepted_hours(text) == []


@pytest.mark.parametrize("text", _rows(QUARTER_PAST_EIGHT))
def test_a_quarter_past_the_hour(text: str) -> None:
    assert not is_refused(text, datetime.time(8, 15))
    assert is_refused(text, datetime.time(8, 45))
    assert _accepted_hours(text) == []


@pytest.mark.parametrize(
    ("text", "time", "other"),
    [
        *((text, (8, 10), (7, 50)) for text in _rows(TEN_PAST_EIGHT)),
        *((text, (7, 50), (8, 10)) for text in _rows(TEN_TO_EIGHT)),
        *((text, (8, 20), (7, 40)) for text in _rows(TWENTY_PAST_EIGHT)),
    ],
)
def test_minutes_in_words(text: str, time: tuple[int, int], other: tuple[int, int]) -> None:
    assert not is_refused(text, datetime.time(*time))
    assert is_refused(text, datetime.time(*other))
    assert _accepted_hours(text) == []


@pytest.mark.parametrize(
    ("text", "value", "time"),
    [
        ("Koupil jsem tři za padesát pět korun.", 55, (7, 50)),
        ("Kupiłem dwa za trzydzieści złotych.", 30, (7, 50)),
        ("Tengo 8 y 10 nietos.", 10, (8, 10)),
        ("Estuvimos allí el 8 y 10 de marzo de 2025.", datetime.date(2025, 3, 10), (8, 10)),
        ("Ich war drei Tage vor acht Leuten dran.", 3, (7, 57)),
        ("Over tien dagen verhuizen we.", datetime.date(2026, 3, 14), (12, 10)),
        ("Vor zwölf Tagen kam er.", datetime.date(2026, 2, 20), (1, 50)),
        ("Za dwanaście dni wyjeżdżamy.", datetime.date(2026, 3, 16), (1, 50)),
    ],
)
def test_numbers_beside_the_same_words_are_no_times(
    text: str, value: Value, time: tuple[int, int]
) -> None:
    assert not is_refused(text, value)
    assert is_refused(text, datetime.time(*time))


@pytest.mark.parametrize("text", _rows(ONE_AND_A_HALF))
def test_one_and_a_half(text: str) -> None:
    assert not is_refused(text, Decimal("1.5"))
    assert is_refused(text, Decimal("2.5"))
