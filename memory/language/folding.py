"""One spelling for texts that differ only in case, accents, marks, width or script of digits."""

import re
import unicodedata

from memory.kernel.texts import with_few_marks

# Scripts without spaces between words: Thai, Lao, Tibetan, Myanmar, Khmer; Han, kana, hangul.
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
    "\u3005\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
)
_OTHER_DIGITS = re.compile(r"(?![0-9])\d")
# The dotless i of Turkish; Arabic's signs in numbers and its elongation; apostrophes; and
# characters without width, such as the marks of direction in Arabic and Hebrew dates.
_SPELLINGS = str.maketrans(
    {"ı": "i", "٫": ".", "٬": ",", "ـ": None, "ʼ": "'", "’": "'", "\u200c": " "}
    | dict.fromkeys("\u00ad\u061c\u200b\u200e\u200f")
)


def fold(text: str) -> str:
    """Return a text in lower case, in compatible characters, without accents and vowel marks.

    Digits of any script become ASCII digits.
    """
    if text.isascii():
        return text.lower()
    parts = unicodedata.normalize("NFKD", with_few_marks(text.casefold()).translate(_SPELLINGS))
    bare = "".join(one for one in parts if not unicodedata.combining(one))
    return with_ascii_digits(unicodedata.normalize("NFC", bare))


def with_ascii_digits(text: str) -> str:
    """Return a text whose digits of other scripts are replaced by ASCII digits."""
    return _OTHER_DIGITS.sub(lambda digit: str(unicodedata.digit(digit[0])), text)
