"""What a language's words mean for dates, times and numbers, from the data of two libraries.

`dateparser` has the names of months, weekdays and units, and the phrases for days relative to now
("übermorgen", "il y a 3 jours", "来週"), from CLDR and its own additions. CLDR's rules for spelling
out numbers (`unicode_rbnf`), turned round, give the number words, with their genders and cases.
"""

import importlib
import itertools
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from memory.language.dates_in_text import MONTH_NAMES
from memory.language.detection import LATIN, count_function_words, function_words
from memory.language.folding import fold
from memory.language.parts_of_hours import AFTER, FRACTIONS, OF, phrases_of
from memory.language.stems import stem

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_UNITS = ("day", "week", "month", "year")
# Marks in a translation that patterns (`translation`) turn into English: on either side of a
# length of time, that it lies ahead or has passed; next to a weekday, which one; and of a clock.
AHEAD_OF, AHEAD_AFTER, PAST_OF, PAST_AFTER = "\ue000", "\ue001", "\ue002", "\ue003"
NEXT, LAST, HOUR, MINUTE = "\ue004", "\ue005", "\ue006", "\ue007"
# Before a month whose short form is also another word: Polish "się" is August only beside a number.
SHORT = "\ue008"
MARKS = f"{AHEAD_OF}-{AFTER}"

# Languages without spaces between words; in Korean, particles are attached to words.
_UNSPACED = frozenset({"ja", "zh", "th", "km", "lo", "my"})
ATTACHED = frozenset({"ko"})
# dateparser's files for a language, if their names differ from its code.
_FILES = {
    "zh": ("zh", "zh-Hant"),
    "no": ("nb",),
    "sr": ("sr-Cyrl", "sr-Latn"),
    "tl": ("fil",),
}
# What the libraries lack.
_ADDITIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "ar": {
        AHEAD_OF: ("بعد",),
        "2 weeks": ("أسبوعين",),
        "2 months": ("شهرين",),
        "2 years": ("سنتين", "عامين"),
        "in 2 days": ("بعد غد", "بعد الغد"),
        "2 days": ("يومين",),
        "2 days ago": ("أول أمس", "أول من أمس"),
        "200": ("مئتا", "مائتا", "مئتين", "مائتين"),
        "2000": ("ألفان", "ألفا"),
    },
    "cs": {"1": ("jednu",), "2": ("dvěma",), "3": ("třemi",), "4": ("čtyřmi",), "5": ("pěti",)}
    | {"12": ("tucet",), ",": ("ráno", "dopoledne", "odpoledne", "večer")},
    "de": {
        "week after next": ("übernächste Woche",),
        "week before last": ("vorletzte Woche",),
        "in 2 months": ("übernächster Monat",),
        "2 months ago": ("vorletzter Monat",),
        "in 2 years": ("übernächstes Jahr",),
        "2 years ago": ("vorletztes Jahr",),
        "12": ("Dutzend",),
    },
    "da": {"12": ("dusin",), "in 2 days": ("i overmorgen",), "2 days ago": ("i forgårs",)},
    "el": {"7": ("εφτά",), "8": ("οχτώ",), "9": ("εννιά",)}
    | {"days": ("μέρα", "μέρες"), "in 2 days": ("μεθαύριο",), "2 days ago": ("προχθές",)},
    "es": {"in 2 days": ("pasado mañana",), NEXT: ("que viene",), "12": ("docena",)}
    | {",": ("de la mañana", "de la tarde", "de la noche")},
    "et": {"in 2 days": ("ülehomme",), "2 days ago": ("üleeile",)},
    "fi": {
        HOUR: ("kello", "klo"),
        "12": ("tusina",),
        "in 2 days": ("ylihuomenna",),
        "2 days ago": ("toissapäivänä",),
    },
    "fr": {NEXT: ("qui vient",), "12": ("douzaine",)},
    "he": {
        "2 days": ("יומיים",),
        "2 weeks": ("שבועיים",),
        "2 months": ("חודשיים",),
        "2 years": ("שנתיים",),
        "in 2 days": ("מחרתיים",),
        "2 days ago": ("שלשום",),
    },
    "hi": {"in 2 days": ("परसों",), "15": ("पंद्रह",), HOUR: ("बजे", "बजकर"), "12": ("दर्जन",)}
    | {"weeks": ("हफ़्ता", "हफ़्ते", "हफ़्तों")},
    "hr": {"1000": ("tisuću",)},
    "hu": {
        "2": ("két",),
        "12": ("tucat",),
        NEXT: ("jövő",),
        LAST: ("múlt",),
        "in 2 days": ("holnapután",),
        "last year": ("tavaly",),
    },
    "id": {AHEAD_AFTER: ("lagi",), "in 2 days": ("lusa",)},
    "it": {AHEAD_OF: ("fra", "tra"), "in 2 days": ("dopodomani",), NEXT: ("che viene",)}
    | {"12": ("dozzina",), ",": ("di mattina", "del mattino", "del pomeriggio", "di sera")},
    "ja": {
        "tomorrow": ("あした",),
        "yesterday": ("きのう",),
        "in 2 days": ("あさって",),
        "2 days ago": ("おととい",),
        "week after next": ("再来週",),
        "week before last": ("先々週",),
        "months": ("个月", "個月"),
        "in 2 months": ("再来月",),
        "2 months ago": ("先々月",),
        "in 2 years": ("再来年",),
        "2 years ago": ("一昨年", "おととし"),
    },
    "ko": {
        "in 2 days": ("모레",),
        "2 days ago": ("그저께", "그제"),
        LAST: ("지난",),
        NEXT: ("다음",),
        "2 days": ("이틀",),
        "3 days": ("사흘",),
        "4 days": ("나흘",),
        "10 days": ("열흘",),
        "in 3 days": ("글피",),
        "3 days ago": ("그끄저께", "그끄제"),
        "15 days": ("보름",),
        "week after next": ("다다음 주",),
        "week before last": ("지지난주",),
    },
    "nl": {
        "in 2 days": ("overmorgen",),
        LAST: ("afgelopen",),
        "12": ("dozijn",),
        "last weekend": ("vorig weekend",),  # the stem of "weekend" is "week"
        "this weekend": ("dit weekend",),
        "next weekend": ("volgend weekend",),
    },
    "lt": {"in 2 days": ("poryt",), "2 days ago": ("užvakar",)},
    "lv": {"in 2 days": ("parīt",), "2 days ago": ("aizvakar",)},
    "no": {"12": ("dusin",), "in 2 days": ("i overmorgen",), "2 days ago": ("i forgårs",)},
    "pl": {"in 2 days": ("pojutrze",), "2 days ago": ("przedwczoraj",)}
    | {"12": ("tuzin",), HOUR: ("godzinie",)}
    | {",": ("rano", "po południu", "wieczorem", "w nocy")},
    "pt": {AHEAD_OF: ("daqui a", "dentro de"), "in 2 days": ("depois de amanhã",)}
    | {NEXT: ("que vem",), "12": ("dúzia",), ",": ("da manhã", "da tarde", "da noite")},
    "ro": {"in 2 days": ("poimâine",), "2 days ago": ("alaltăieri",), "monday": ("lunea",)}
    | {"last monday": ("lunea trecută",), "next monday": ("lunea viitoare",)},
    "ru": {"may": ("мае",), "12": ("дюжина",), ",": ("утра", "вечера", "ночи")},
    "sl": {"in 2 days": ("pojutrišnjem",), "2 days ago": ("predvčerajšnjim",)},
    "sr": {"1000": ("хиљаду", "hiljadu")},
    "sv": {"12": ("dussin",), "in 2 days": ("i övermorgon",)},
    "th": {HOUR: ("โมง", "นาฬิกา"), "in 2 days": ("มะรืนนี้", "มะรืน"), "2 days ago": ("เมื่อวานซืน",)},
    "tr": {
        "12": ("düzine",),
        "in 2 days": ("öbür gün",),
        "2 days ago": ("evvelsi gün", "önceki gün"),
        "last weekend": ("geçen hafta sonu",),
        "this weekend": ("bu hafta sonu",),
        "next weekend": ("gelecek hafta sonu", "önümüzdeki hafta sonu"),
    },
    "uk": {"1": ("одну",), "1000": ("тисячу",), "12": ("дюжина",)}
    | {",": ("ранку", "вечора", "ночі")},
    "vi": {AHEAD_AFTER: ("nữa",), "in 2 days": ("ngày kia",), "2 days ago": ("hôm kia",)},
    "zh": {
        HOUR: ("点", "點", "时", "時"),
        "": ("有一点", "有一點"),
        "half": ("一半",),
        "weeks": ("个星期", "個星期", "个礼拜", "個禮拜"),
        "next week": ("下个星期", "下個星期", "下星期"),
        "last week": ("上个星期", "上個星期", "上星期"),
        "week after next": ("下下周", "下下週", "下下个星期"),
        "week before last": ("上上周", "上上週", "上上个星期"),
        "in 2 years": ("后年", "後年"),
        "2 years ago": ("前年",),
    },
}
# The weekend, in neither of the libraries.
_WEEKENDS: Mapping[str, str] = {
    "ar": "عطلة نهاية الأسبوع | نهاية الأسبوع",
    "bg": "уикенд | почивните дни",
    "ca": "cap de setmana",
    "cs": "víkend",
    "da": "weekend",
    "de": "Wochenende",
    "el": "σαββατοκύριακο",
    "es": "fin de semana",
    "et": "nädalavahetus | nädalalõpp",
    "eu": "asteburu",
    "fa": "آخر هفته",
    "fi": "viikonloppu",
    "fr": "week-end | weekend",
    "gl": "fin de semana",
    "he": "סוף השבוע | סוף שבוע",
    "hi": "सप्ताहांत | वीकेंड",
    "hr": "vikend",
    "hu": "hétvége | hétvégén",
    "id": "akhir pekan | akhir minggu",
    "it": "weekend | fine settimana",
    "ja": "週末",
    "ko": "주말",
    "lt": "savaitgalis | savaitgalį",
    "lv": "nedēļas nogale | nedēļas nogalē",
    "nl": "weekend",
    "no": "helg | helgen",
    "pl": "weekend",
    "pt": "fim de semana",
    "ro": "weekend | sfârșit de săptămână | sfârșitul de săptămână",
    "ru": "выходные | выходных",
    "sk": "víkend",
    "sl": "konec tedna | vikend",
    "sr": "vikend | викенд",
    "sv": "helg | helgen",
    "sw": "wikendi",
    "th": "สุดสัปดาห์ | เสาร์อาทิตย์",
    "tr": "hafta sonu",
    "uk": "вихідні | вихідних",
    "vi": "cuối tuần",
    "zh": "周末 | 週末 | 个周末 | 個週末",
}
# The ordinals from 1 to 20, and 30, with their endings, of languages without them in CLDR's rules.
_ORDINALS: Mapping[str, tuple[str, str]] = {
    "cs": (
        "prvn druh třet čtvrt pát šest sedm osm devát desát jedenáct dvanáct třináct čtrnáct"
        " patnáct šestnáct sedmnáct osmnáct devatenáct dvacát třicát",
        "ý á é ého ém ou í ího ím",
    ),
    "pl": (
        "pierwsz drug trzec czwart piąt szóst siódm ósm dziewiąt dziesiąt jedenast dwunast"
        " trzynast czternast piętnast szesnast siedemnast osiemnast dziewiętnast dwudziest"
        " trzydziest",
        "y a ą ego ej ym i ia ią iego iej im",
    ),
    "sk": (
        "prv druh tret štvrt piat šiest siedm ôsm deviat desiat jedenást dvanást trinást štrnást"
        " pätnást šestnást sedemnást osemnást devätnást dvadsiat tridsiat",
        "ý y á a ia ej ého eho ieho om ú u iu",
    ),
    "uk": (
        "перш друг трет четверт п'ят шост сьом восьм дев'ят десят одинадцят дванадцят тринадцят"
        " чотирнадцят п'ятнадцят шістнадцят сімнадцят вісімнадцят дев'ятнадцят двадцят тридцят",
        "ий а у е ого ої ій ому ім я ю є ього ьої ьому",
    ),
}
_RELATIVE = {
    "0 day ago": "today",
    "in 1 day": "tomorrow",
    "1 day ago": "yesterday",
    **{f"0 {unit} ago": f"this {unit}" for unit in _UNITS[1:]},
    **{f"in 1 {unit}": f"next {unit}" for unit in _UNITS[1:]},
    **{f"1 {unit} ago": f"last {unit}" for unit in _UNITS[1:]},
}
_LENGTH = re.compile(r"(in )?(\d+) (day|week|month|year)( ago)?")
_NUMBER = r"(\d++[.,]?\d*+)"
# How long a name of a month or weekday must be: shorter ones are other words, such as "mit".
_MIN_NAME = 4
_MAX_ABBREVIATION = 5  # as "heinä" in Finnish (July, and hay); longer ones are no other words
_CYRILLIC = ("ru", "uk", "bg", "sr", "be", "mk")
_LETTERS = re.compile(r"[^\W\d_]+")
MIN_STEMMED = 5  # shorter words lose too much with their endings
_WORDS = re.compile(r"[^\s\-'’.,]+")
# The numbers whose words are learned, and by which words for hundreds, thousands and so on are.
_SMALL = (*range(101), *range(200, 1000, 100))
_SCALES = (100, 1000, 10_000, 100_000, 10**6, 10**7, 10**8, 10**9, 10**12)
_SAMPLES = (101, 121, 245, 1001, 1100, 1234, 2345, 21_021)


@dataclass(frozen=True)
class Lexicon:
    """A language's phrases, folded, with single spaces.

    `meanings` has the English for each phrase, `stems` for the stems of its words; `numbers` the
    values of number words, `scales` those that multiply, such as "hundert", and `joints` the words
    between them, such as "und". `longest` is the largest number of words (or characters, if there
    are no spaces) in a phrase; `is_year_first` says in which order numeric dates are written.
    """

    language: str
    meanings: Mapping[str, str]
    stems: Mapping[str, str]
    numbers: Mapping[str, float]
    scales: tuple[str, ...]
    joints: frozenset[str]
    longest: int
    is_year_first: bool
    stem: Callable[[str], str] = field(repr=False)

    @property
    def is_spaced(self) -> bool:
        """Whether the language puts spaces between words, without attaching particles."""
        return _is_spaced(self.language)


def is_scale(number: float) -> bool:
    """Return whether a number multiplies the one before it: a hundred, a thousand and so on."""
    return number >= 100 and str(number).strip("0") == "1"


def _is_spaced(language: str) -> bool:
    return language not in _UNSPACED | ATTACHED


def folded(text: str, language: str) -> str:
    """Return a folded text; in Vietnamese, whose words differ by them, with its marks.

    In Arabic, the ending of the accusative, whose mark would be lost, isn't kept: "ألفًا" is "ألف".
    """
    if language == "ar":
        text = text.replace("اً", "").replace("ًا", "")
    return unicodedata.normalize("NFC", text.casefold()) if language == "vi" else fold(text)


def key_of(text: str, *, is_spaced: bool) -> str:
    """Return a folded phrase as the keys of a lexicon are written."""
    return (" " if is_spaced else "").join(_WORDS.findall(text))


@lru_cache(maxsize=16)
def lexicon_of(language: str) -> Lexicon | None:
    """Return a language's lexicon, or None if dateparser doesn't know the language."""
    infos = list(_infos(language))
    if not infos:
        return None
    is_spaced = _is_spaced(language)
    stem_word = partial(stem, language=language)
    numbers = _numbers(language)
    meanings = _meanings(language, infos, numbers, stem_word)
    stems = {
        " ".join(map(stem_word, key.split())): text
        for key, text in meanings.items()
        if len(key) >= MIN_STEMMED
    }
    sizes = [len(key.split()) if is_spaced else len(key) for key in (*meanings, *numbers)]
    return Lexicon(
        language,
        meanings,
        stems if is_spaced else {},
        numbers,
        tuple(word for word, number in numbers.items() if is_scale(number)),
        _joints(language, numbers, is_spaced),
        min(max(sizes), 12),
        infos[0].get("date_order", "").startswith("Y"),
        stem_word,
    )


def languages_of_dates(text: str) -> list[str]:
    """Return the languages to which most of a text's words for weekdays and relative dates belong.

    Only Latin and Cyrillic letters count. A text as short as "letzte Woche" has no other words that
    tell its language. Where other words tell another one, a name or a word that both have isn't a
    date: "hier" is yesterday in French, but "Wer wohnt hier?" isn't French.
    """
    words = [*dict.fromkeys(_LETTERS.findall(unicodedata.normalize("NFC", text).lower()))]
    languages_of_words = [_languages_of_date_words().get(fold(word), ()) for word in words]
    counts = Counter(itertools.chain.from_iterable(languages_of_words))
    most = max(counts.values(), default=0)
    languages = []
    for language in (language for language, count in counts.items() if count == most):
        is_date = [language in its_languages for its_languages in languages_of_words]
        rest = [word for word, is_one in zip(words, is_date, strict=True) if not is_one]
        evidence = sum(is_date) + len(function_words(language).intersection(rest))
        if evidence > max(count_function_words(rest).values()):
            languages.append(language)
    return languages


@lru_cache(maxsize=1)
def _languages_of_date_words() -> Mapping[str, Collection[str]]:
    """Return the languages of the words for weekdays, units, and dates relative to now."""
    by_word = defaultdict[str, dict[str, None]](dict)
    for language in (*LATIN, *_CYRILLIC):
        phrases = [*itertools.chain(*_ADDITIONS.get(language, {}).values()), *_weekends(language)]
        for info in _infos(language):
            phrases += itertools.chain(*(info.get(name, ()) for name in (*_WEEKDAYS, *_UNITS)))
            for meaning, names in info.get("relative-type", {}).items():
                if meaning in _RELATIVE or _LENGTH.fullmatch(meaning):
                    phrases += names
        for word in itertools.chain(*map(_LETTERS.findall, phrases)):
            if len(word) >= _MIN_NAME - (not word.isascii()):
                by_word[fold(word)][language] = None
    return by_word


def _meanings(
    language: str,
    infos: Sequence[Mapping[str, Any]],
    numbers: dict[str, float],
    stem: Callable[[str], str],
) -> dict[str, str]:
    """Return the English for each phrase of a language, and add to its number words."""
    is_spaced = _is_spaced(language)
    meanings: defaultdict[str, dict[str, None]] = defaultdict(dict)

    def add(phrases: Iterable[str], meaning: str) -> None:
        for phrase in phrases:
            key = key_of(folded(phrase, language), is_spaced=is_spaced)
            if key and meaning.isdecimal():
                numbers.setdefault(key, int(meaning))
            elif key:
                meanings[key][meaning] = None
                if language == "he" and key[0] == "ה" and " " in key:  # the article
                    meanings[key[1:]][meaning] = None

    for info in infos:
        _add_names(info, add, language)
        _add_relative(info, add)
        _add_marks(info, add, language)
    add(_weekends(language), "weekends")
    _add_additions(language, numbers, add)
    if is_spaced:
        _add_directions(infos, add, stem)
    else:
        _add_directed_weekdays(infos, add, _weekends(language))
    for info in infos:
        for phrase, text in _literals(info):
            key = key_of(folded(phrase, language), is_spaced=is_spaced)
            if key not in meanings and not numbers.keys() & key.split():
                add([phrase], _restated(folded(text, language), meanings, is_spaced))
    return {  # units first, to follow their number; signs stand between two numbers
        key: (" " if {f"{OF}+", f"{OF}-"} & {*meanings_of_key} else " , ").join(
            sorted(meanings_of_key, key=lambda meaning: not meaning.endswith("s"))
        )
        for key, meanings_of_key in meanings.items()
    }


_Add = Callable[[Iterable[str], str], None]


def _infos(language: str) -> Iterator[Mapping[str, Any]]:
    for name in _FILES.get(language, (language,)):
        with suppress(ModuleNotFoundError):
            module = importlib.import_module(f"dateparser.data.date_translation_data.{name}")
            yield module.info


def _weekends(language: str) -> list[str]:
    return [*filter(None, _WEEKENDS.get(language, "").split(" | "))]


def _add_additions(language: str, numbers: Mapping[str, float], add: _Add) -> None:
    for meaning, phrases in _ADDITIONS.get(language, {}).items():
        add(phrases, meaning)
    for phrase, mark in phrases_of(language, numbers, is_spaced=_is_spaced(language)):
        add([phrase], mark)


def _add_names(info: Mapping[str, Any], add: _Add, language: str) -> None:
    for name in (*MONTH_NAMES, *_WEEKDAYS):
        forms = [form for form in info.get(name, ()) if not form.isdecimal()]
        if not _is_spaced(language):
            forms = [form for form in forms if len(form) > 1]
        elif name in _WEEKDAYS:
            is_latin = any("a" <= character <= "z" for form in forms for character in fold(form))
            least = _MIN_NAME if is_latin else _MIN_NAME - 1
            forms = [form for form in forms if len(form) >= least] or forms
        else:
            short = {form for form in forms if _is_short(form, forms, language)}
            add(short, f"{SHORT}{name}")
            forms = [form for form in forms if form not in short]
        add(forms, name)
    for unit in _UNITS:
        add(_longer(info.get(unit, ()), language), f"{unit}s")
    add(_longer(info.get("hour", ()), language), HOUR)
    add(_longer(info.get("minute", ()), language), MINUTE)
    add([*info.get("am", ()), *info.get("pm", ())], "")


def _is_short(form: str, forms: Iterable[str], language: str) -> bool:
    """Return whether a month's form abbreviates another, or is a word that most sentences have.

    A whole name with an ending is hardly longer: "August" and "Augustes".
    """
    if form in function_words(language):
        return True
    least = len(form) + (1 if len(form) < _MIN_NAME else 2)
    return len(form) <= _MAX_ABBREVIATION and any(
        len(one) >= least and fold(one).startswith(fold(form)) for one in forms
    )


def _longer(forms: Iterable[str], language: str) -> list[str]:
    """Return the forms without single letters, which are also words and endings."""
    return [form for form in forms if len(form) > _is_spaced(language)]


def _add_relative(info: Mapping[str, Any], add: _Add) -> None:
    for meaning, phrases in info.get("relative-type", {}).items():
        if meaning in _RELATIVE:
            add(phrases, _RELATIVE[meaning])
        elif match := _LENGTH.fullmatch(meaning):
            add(phrases, meaning.replace(match[3], f"{match[3]}s"))


def _add_marks(info: Mapping[str, Any], add: _Add, language: str) -> None:
    """Add the words before and after a length of time that say whether it is ahead or past."""
    for meaning, patterns in info.get("relative-type-regex", {}).items():
        unit = meaning.removeprefix("in ").removesuffix(" ago").removeprefix("\\1 ")
        if unit not in _UNITS:
            continue
        is_past = meaning.endswith(" ago")
        forms = sorted(info.get(unit, ()), key=len, reverse=True)
        for pattern in patterns:
            before, _, after = pattern.partition(_NUMBER)
            before, after = before.strip(), after.strip()
            if "\\" in before + after or "(" in before + after:
                continue
            form = next((one for one in forms if after.startswith(one)), None)
            if form is None:
                form = after if before else after.split(" ")[0]
            rest = after.removeprefix(form).strip()
            add(_longer([form], language), f"{unit}s")
            add([before], PAST_OF if is_past else AHEAD_OF)
            add([rest], PAST_AFTER if is_past else AHEAD_AFTER)
    for name, words, after in (("in", AHEAD_OF, AHEAD_AFTER), ("ago", PAST_OF, PAST_AFTER)):
        add(info.get(name, ()), words + after)


def _add_directions(
    infos: Iterable[Mapping[str, Any]], add: _Add, stem: Callable[[str], str]
) -> None:
    """Add the words for "next" and "last": those that phrases for several units have in common."""
    used: dict[str, defaultdict[str, set[str]]] = {}
    for mark, form in ((NEXT, "in 1 {}"), (LAST, "1 {} ago"), ("", "0 {} ago")):
        used[mark] = defaultdict(set)
        for info in infos:
            for unit in _UNITS[1:]:
                for phrase in info.get("relative-type", {}).get(form.format(unit), ()):
                    for word in _WORDS.findall(folded(phrase, info["name"])):
                        used[mark][word].add(unit)
    for mark, other in ((NEXT, LAST), (LAST, NEXT)):
        by_stem: defaultdict[str, set[str]] = defaultdict(set)
        for word, units in used[mark].items():
            by_stem[stem(word)] |= units
        elsewhere = {stem(word) for word in (*used[other], *used[""])}
        for word in used[mark]:
            if len(word) > 2 and len(by_stem[stem(word)]) > 1 and stem(word) not in elsewhere:
                add([word], mark)


def _add_directed_weekdays(
    infos: Iterable[Mapping[str, Any]], add: _Add, weekends: Sequence[str]
) -> None:
    """Add phrases such as "下周五": a weekday with what phrases for "next" units begin or end with.

    A weekday's name begins with a unit in Chinese, so "下周" would be read there otherwise.
    """
    for info in infos:
        relative = info.get("relative-type", {})
        names = {**{name: info.get(name, ()) for name in _WEEKDAYS}, "weekend": weekends}
        for direction, form in (("next", "in 1 {}"), ("last", "1 {} ago"), ("this", "0 {} ago")):
            weeks, months = (
                [fold(one).replace(" ", "") for one in relative.get(form.format(unit), ())]
                for unit in ("week", "month")
            )
            for week, month in itertools.product(weeks, months):
                begin = _common(week, month)
                end = _common(week[::-1], month[::-1])[::-1]
                for name, forms in names.items():
                    days = [day for day in forms if len(day) > 1]
                    if begin:
                        add([begin + day for day in days], f"{direction} {name}")
                    elif len(end) > 1:
                        add([day + end for day in days], f"{direction} {name}")


def _common(first: str, second: str) -> str:
    """Return what two texts both begin with."""
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return "".join(one for one, _ in pairs)


def _literals(info: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for simplification in info.get("simplifications", ()):
        for phrase, text in simplification.items():
            if not re.search(r"[\\()\[\]?*+|.]", phrase) and "\\" not in text:
                yield phrase, text


def _restated(text: str, meanings: Mapping[str, Iterable[str]], is_spaced: bool) -> str:
    """Return the English for what a phrase is simplified to, such as "za 2 dnia"."""
    return " ".join(
        " ".join(meanings.get(key_of(word, is_spaced=is_spaced), (word,))) for word in text.split()
    )


def _numbers(language: str) -> dict[str, float]:
    """Return the values of a language's number words, ordinals included."""
    spell = _speller(language)
    is_spaced = _is_spaced(language)
    words: dict[str, float] = {}

    def add(text: str, number: float) -> None:
        key = key_of(text, is_spaced=is_spaced)
        if key and not any(map(str.isdigit, key)):
            words.setdefault(key, number)

    for number in _SMALL:
        for text in spell(number).values():
            add(text, number)
            if language == "ar" and number <= 10:
                add(text.removesuffix("ة"), number)  # as before feminine nouns
            elif language == "ar" and text.endswith("ة ماية"):  # in one word
                times = text.removesuffix("ة ماية").removesuffix("ي")
                add(f"{times}ماية", number)
                add(f"{times}مية", number)
            elif language == "ar" and text.endswith("ون"):
                add(f"{text.removesuffix('ون')}ين", number)  # the accusative
    for scale in _SCALES:
        for text, number in _scale_words(spell, scale):
            add(text, number)
    for text, value in _more_words(language):
        add(folded(text, language), value)
    return words


def _more_words(language: str) -> Iterator[tuple[str, float]]:
    """Yield number words that CLDR's rules don't have."""
    for fraction, forms in FRACTIONS.get(language, {}).items():
        for form in forms:
            yield form, fraction
    stems, endings = _ORDINALS.get(language, ("", ""))
    for number, beginning in zip((*range(1, 21), 30), stems.split(), strict=False):
        for ending in endings.split():
            yield f"{beginning}{ending}", number


def _scale_words(spell: Callable[[int], dict[str, str]], scale: int) -> Iterator[tuple[str, int]]:
    """Yield the words for a hundred, a thousand and so on, alone and in what they are parts of."""
    for text in spell(scale + 1).values():  # "ciento uno", although 100 is "cien"
        for last in spell(1).values():
            if text.endswith(last):
                yield re.sub(r"\s\w{1,2}$", "", text.removesuffix(last).rstrip()), scale
    for times in (1, 2, 3, 5):
        alone = spell(times)
        for ruleset, text in spell(times * scale).items():
            yield text, times * scale
            if prefix := alone.get(ruleset, ""):
                rest = text.removeprefix(prefix)
                if rest != text:
                    yield rest, scale


def _speller(language: str) -> Callable[[int], dict[str, str]]:
    """Return a function that spells out a number in each of a language's ways, by their names."""
    # Only a process that reads other languages imports them.
    from unicode_rbnf import FormatPurpose, RbnfEngine
    from unicode_rbnf.engine import NoRuleForNumberError

    try:
        engine = RbnfEngine.for_language("nb" if language == "no" else language)
    except ValueError:
        return lambda number: {}

    def spell(number: int) -> dict[str, str]:
        texts: dict[str, str] = {}
        for purpose in (FormatPurpose.CARDINAL, FormatPurpose.ORDINAL):
            with suppress(ValueError, NoRuleForNumberError):  # not every language has ordinals
                texts |= engine.format_number(number, purpose).text_by_ruleset
        return {name: folded(text, language) for name, text in texts.items()}

    return spell


def _joints(language: str, numbers: Mapping[str, float], is_spaced: bool) -> frozenset[str]:
    """Return the words that stand between number words, such as "et"."""
    if not is_spaced:
        return frozenset()
    spell = _speller(language)
    words = {
        word for number in _SAMPLES for text in spell(number).values() for word in text.split()
    }
    return frozenset(word for word in words if len(word) <= 3 and word not in numbers) | {"و"}
