"""The words for halves and quarters beside numbers, and minutes: "halb acht", "et demie", "buçuk".

Languages say them of hours and of anything else. In some, half an hour is past the hour that is
named (French "sept heures et demie" is 7:30), in others it is to it (German "halb acht" is, too).
The phrases stand in a text as marks, each with its minutes, before or after the number.
"""

from collections.abc import Iterator, Mapping

OF, AFTER = "\ue009", "\ue00a"  # before the number, and after it

# The phrases beside a number, which {} stands for, by the minutes from a full hour. A sign alone
# says that another number tells the minutes, as in "neuf heures moins dix" or "zehn nach acht".
PHRASES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "ar": {
        "+30": ("{} والنصف", "{} ونصف", "{} ونص"),
        "+15": ("{} والربع", "{} وربع"),
        "+20": ("{} والثلث", "{} وثلث"),
        "-15": ("{} إلا ربع", "{} إلا الربع"),
        "-": ("{} إلا",),
    },
    "bg": {
        "+30": ("{} и половина",),
        "+15": ("{} и четвърт",),
        "-15": ("{} без четвърт",),
        "-": ("{} без",),
    },
    "ca": {
        "+30": ("{} i mitja", "{} i mig"),
        "+15": ("{} i quart",),
        "-15": ("{} menys quart", "tres quarts de {}", "tres quarts d'{}"),
        "-30": ("dos quarts de {}", "dos quarts d'{}"),
        "-45": ("un quart de {}", "un quart d'{}"),
        "-": ("{} menys",),
    },
    "cs": {
        "+30": ("{} a půl",),
        "-30": ("půl {}",),
        "-15": ("tři čtvrtě na {}", "třičtvrtě na {}"),
        "-45": ("čtvrt na {}",),
        "-": ("za {}",),
    },
    "da": {
        "+30": ("{} og en halv", "{} og et halvt"),
        "-30": ("halv {}",),
        "+15": ("kvart over {}", "kvarter over {}"),
        "-15": ("kvart i {}", "kvarter i {}"),
        "+": ("over {}",),
        "-": ("i {}",),
    },
    "de": {
        "-30": ("halb {}",),
        "+15": ("Viertel nach {}",),
        "-15": ("Viertel vor {}", "drei Viertel {}", "dreiviertel {}"),
        "-45": ("Viertel {}",),
        "+": ("nach {}",),
        "-": ("vor {}",),
    },
    "el": {
        "+30": ("{} και μισή", "{} και μισό"),
        "+15": ("{} και τέταρτο",),
        "-15": ("{} παρά τέταρτο",),
        "-": ("{} παρά",),
    },
    "es": {
        "+30": ("{} y media", "{} y medio"),
        "+15": ("{} y cuarto",),
        "-15": ("{} menos cuarto", "cuarto para las {}", "un cuarto para las {}"),
        "-": ("{} menos", "para las {}"),
    },
    "et": {"-30": ("pool {}",), "-45": ("veerand {}",), "-15": ("kolmveerand {}",)},
    "fa": {"+30": ("{} و نیم",), "+15": ("{} و ربع",)},
    "fi": {
        "+30": ("{} ja puoli",),
        "-30": ("puoli {}",),
        "+15": ("vartti yli {}", "varttia yli {}", "vartin yli {}"),
        "-15": ("vartti vaille {}", "varttia vaille {}", "vartin vaille {}"),
        "-": ("vaille {}",),
        "+": ("yli {}",),
    },
    "fr": {
        "+30": ("{} et demie", "{} et demi"),
        "+15": ("{} et quart", "{} et un quart"),
        "-15": ("{} moins le quart", "{} moins un quart", "{} moins quart"),
        "-": ("{} moins",),
    },
    "he": {"+30": ("{} וחצי",), "+15": ("{} ורבע",), "-15": ("רבע ל{}",)},
    "hi": {"+30": ("साढ़े {}",), "+15": ("सवा {}",), "-15": ("पौने {}",)},
    "hr": {
        "+30": ("{} i pol", "{} i po"),
        "-30": ("pola {}",),
        "+15": ("{} i četvrt",),
        "-15": ("četvrt do {}",),
    },
    "hu": {
        "+30": ("{} és fél",),
        "-30": ("fél {}",),
        "-45": ("negyed {}",),
        "-15": ("háromnegyed {}",),
    },
    "id": {
        "-30": ("setengah {}",),
        "+15": ("{} lewat seperempat",),
        "-15": ("{} kurang seperempat",),
        "-": ("{} kurang",),
        "+": ("{} lewat",),
    },
    "it": {
        "+30": ("{} e mezza", "{} e mezzo"),
        "+15": ("{} e un quarto", "{} e quarto"),
        "+45": ("{} e tre quarti",),
        "-15": ("{} meno un quarto",),
        "-": ("{} meno",),
    },
    "ja": {"+30": ("{}半",)},
    "ko": {"+30": ("{}반",)},
    "lv": {"-30": ("pus{}",)},
    "nl": {
        "+30": ("{} en een half", "{} en een halve"),
        "-30": ("half {}",),
        "+15": ("kwart over {}",),
        "-15": ("kwart voor {}",),
        "-": ("voor {}",),
        "+": ("over {}",),
    },
    "no": {
        "+30": ("{} og en halv", "{} og et halvt"),
        "-30": ("halv {}",),
        "+15": ("kvart over {}",),
        "-15": ("kvart på {}",),
        "+": ("over {}",),
        "-": ("på {}",),
    },
    "pl": {
        "+30": ("{} i pół",),
        "-30": ("wpół do {}", "pół do {}"),
        "+15": ("kwadrans po {}",),
        "-15": ("za kwadrans {}",),
        "+": ("po {}",),
        "-": ("za {}",),
    },
    "pt": {
        "+30": ("{} e meia", "{} e meio"),
        "+15": ("{} e um quarto", "{} e quarto"),
        "-15": ("{} menos um quarto", "um quarto para as {}"),
        "-": ("{} menos", "para as {}"),
    },
    "ro": {
        "+30": ("{} și jumătate",),
        "+15": ("{} și un sfert",),
        "-15": ("{} fără un sfert",),
        "-": ("{} fără",),
    },
    "ru": {
        "+30": ("{} с половиной",),
        "-30": ("половина {}", "половине {}", "половину {}", "пол{}"),
        "-15": ("без четверти {}",),
        "-45": ("четверть {}",),
        "-": ("без {}",),
    },
    "sk": {
        "+30": ("{} a pol",),
        "-30": ("pol {}",),
        "-15": ("trištvrte na {}",),
        "-45": ("štvrť na {}",),
        "-": ("za {}",),
    },
    "sl": {"+30": ("{} in pol",)},
    "sr": {"+30": ("{} и по", "{} i po"), "-30": ("пола {}", "pola {}")},
    "sv": {
        "+30": ("{} och en halv", "{} och ett halvt"),
        "-30": ("halv {}",),
        "+15": ("kvart över {}",),
        "-15": ("kvart i {}",),
        "+": ("över {}",),
        "-": ("i {}",),
    },
    # Of the clock's four times six hours, those of the evening begin anew at 19:00.
    "th": {"+30": ("{}ครึ่ง",), "+1080": ("{}ทุ่ม",), "+1110": ("{}ทุ่มครึ่ง",)},
    "tr": {
        "+30": ("{} buçuk", "{} buçukta", "{} buçuğa", "{} buçuktan"),
        "+15": ("{} çeyrek geçe", "{} çeyrek geçiyor"),
        "-15": ("{} çeyrek kala", "{} çeyrek var"),
        "+": ("{} geçe", "{} geçiyor"),
        "-": ("{} kala", "{} var"),
    },
    "uk": {
        "+30": ("{} з половиною",),
        "-30": ("пів на {}",),
        "+15": ("чверть по {}",),
        "-15": ("за чверть {}", "без чверті {}"),
        "-45": ("чверть на {}",),
        "+": ("по {}",),
        "-": ("за {}",),
    },
    "vi": {"+30": ("{} rưỡi",), "-": ("{} kém",)},
    "zh": {
        "+30": ("{}半",),
        "+15": ("{}一刻",),
        "+45": ("{}三刻",),
        "-15": ("差一刻{}",),
        "-": ("差{}",),
    },
}
# The other words for such numbers, beside those that end in a half, as in German "zweieinhalb".
FRACTIONS: Mapping[str, Mapping[float, tuple[str, ...]]] = {
    "da": {1.5: ("halvanden", "halvandet")},
    "de": {1.5: ("anderthalb",), 0.5: ("einhalb",)},
    "el": {1.5: ("ενάμιση", "ενάμισι", "μιάμιση")},
    "et": {1.5: ("poolteist",)},
    "fi": {1.5: ("puolitoista",)},
    "hi": {1.5: ("डेढ़",), 2.5: ("ढाई",)},
    "hu": {1.5: ("másfél",)},
    "id": {1.5: ("satu setengah",)},
    "lt": {1.5: ("pusantro", "pusantros")},
    "lv": {1.5: ("pusotra", "pusotru", "pusotras")},
    "nl": {1.5: ("anderhalf", "anderhalve"), 0.5: ("enhalf", "enhalve", "eneenhalf")},
    "no": {1.5: ("halvannen", "halvannet")},
    "pl": {1.5: ("półtora", "półtorej")},
    "ru": {1.5: ("полтора", "полторы", "полутора")},
    "uk": {1.5: ("півтора", "півтори")},
}


def phrases_of(
    language: str, numbers: Mapping[str, float], *, is_spaced: bool
) -> Iterator[tuple[str, str]]:
    """Yield the phrases before or after a number, each with its mark and minutes.

    Where an hour is in one word with it, such as in Russian "полвосьмого", the word has the time.
    """
    for minutes, templates in PHRASES.get(language, {}).items():
        for template in templates:
            before, _, after = template.partition("{}")
            if not before:
                yield after, f"{AFTER}{minutes}"
            elif before[-1].isspace() or not is_spaced:
                yield before, f"{OF}{minutes}"
            else:
                for word, hour in numbers.items():
                    if hour in range(1, 13):
                        yield f"{before}{word}", clock(60 * int(hour) + int(minutes))


def clock(minutes: int) -> str:
    """Return the time so many minutes after midnight, with twelve for the hour zero."""
    hour, minute = divmod(minutes % (24 * 60), 60)
    return f"{hour or 12}:{minute:02}"
