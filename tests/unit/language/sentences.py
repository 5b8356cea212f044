"""True and false facts of sentences in many languages, with dates, times, amounts and numbers.

The phrases for days relative to a Wednesday are written by hand. Dates, times and amounts are
written as CLDR prescribes (`babel`); numbers are spelled out in `numbers.txt`.
"""

import datetime
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from babel.dates import format_date, format_time
from babel.numbers import format_decimal

from memory.project import PartialDate, RecordId
from memory.project.values import Value
from workers.grounding.values_in_entries import Claim, Source, ungrounded

AT = datetime.datetime(2026, 3, 4, 9, 30, tzinfo=datetime.UTC)  # a Wednesday
# The values of the relative phrases, in the order in which they are written below, and for each a
# value that nobody means by it.
RELATIVE: tuple[tuple[Value, Value], ...] = (
    (datetime.date(2026, 3, 5), datetime.date(2026, 3, 7)),  # tomorrow
    (datetime.date(2026, 3, 3), datetime.date(2026, 3, 1)),  # yesterday
    (datetime.date(2026, 3, 6), datetime.date(2026, 3, 8)),  # the day after tomorrow
    (datetime.date(2026, 3, 1), datetime.date(2026, 2, 28)),  # three days ago
    (datetime.date(2026, 3, 18), datetime.date(2026, 3, 20)),  # in two weeks
    (datetime.date(2026, 3, 13), datetime.date(2026, 3, 12)),  # next Friday
    (datetime.date(2026, 3, 2), datetime.date(2026, 2, 26)),  # last Monday
    (datetime.date(2026, 3, 7), datetime.date(2026, 3, 8)),  # on Saturday
    (PartialDate("2026-04"), PartialDate("2026-05")),  # next month
    (2025, 2024),  # last year
)
DAYS = (datetime.date(2026, 5, 2), datetime.date(2027, 11, 23), datetime.date(2024, 8, 31))
DAYS_OF_YEAR = (datetime.date(2026, 3, 21), datetime.date(2026, 10, 9), datetime.date(2025, 12, 6))
TIMES = (datetime.time(7, 45), datetime.time(20, 15), datetime.time(14, 0))
NUMBERS = (7, 12, 21, 56, 90, 121, 300, 1200, 2500, 15_000)
AMOUNTS = (Decimal("12.5"), Decimal(1200), Decimal("3450.75"), Decimal(250_000))


@dataclass(frozen=True)
class Language:
    """How a language says something on a day, what it costs, when; and the relative phrases."""

    on_day: str
    costs: str
    at: str
    relative: str


LANGUAGES: Mapping[str, Language] = {
    "en": Language(
        "On {} I fly to Rome.",
        "The ticket costs {} euros.",
        "The appointment is at {}.",
        "Tomorrow I see the doctor. | I saw her yesterday. | The day after tomorrow we move."
        " | I had it repaired three days ago. | In two weeks I have surgery."
        " | Next Friday I fly to Rome. | Last Monday the car broke down."
        " | We meet on Saturday. | Next month I start my job. | Last year we got married.",
    ),
    "de": Language(
        "Am {} fliege ich nach Rom.",
        "Die Fahrkarte kostet {} Euro.",
        "Der Termin ist um {}.",
        "Morgen gehe ich zum Arzt. | Ich habe sie gestern gesehen. | Übermorgen ziehen wir um."
        " | Vor drei Tagen habe ich es reparieren lassen. | In zwei Wochen werde ich operiert."
        " | Nächsten Freitag fliege ich nach Rom. | Letzten Montag ging das Auto kaputt."
        " | Wir treffen uns am Samstag. | Nächsten Monat fange ich die neue Arbeit an."
        " | Letztes Jahr haben wir geheiratet.",
    ),
    "fr": Language(
        "Le {} je pars pour Rome.",
        "Le billet coûte {} euros.",
        "Le rendez-vous est à {}.",
        "Demain je vais chez le médecin. | Je l'ai vue hier. | Après-demain nous déménageons."
        " | Je l'ai fait réparer il y a trois jours. | Dans deux semaines je me fais opérer."
        " | Vendredi prochain je pars pour Rome. | Lundi dernier la voiture est tombée en panne."
        " | On se voit samedi. | Le mois prochain je commence mon nouveau travail."
        " | L'année dernière nous nous sommes mariés.",
    ),
    "es": Language(
        "El {} vuelo a Roma.",
        "El billete cuesta {} euros.",
        "La cita es a las {}.",
        "Mañana voy al médico. | La vi ayer. | Pasado mañana nos mudamos."
        " | Lo mandé reparar hace tres días. | En dos semanas me operan."
        " | El próximo viernes vuelo a Roma. | El lunes pasado se averió el coche."
        " | Nos vemos el sábado. | El próximo mes empiezo mi nuevo trabajo."
        " | El año pasado nos casamos.",
    ),
    "it": Language(
        "Il {} volo a Roma.",
        "Il biglietto costa {} euro.",
        "L'appuntamento è alle {}.",
        "Domani vado dal medico. | L'ho vista ieri. | Dopodomani traslochiamo."
        " | L'ho fatto riparare tre giorni fa. | Tra due settimane mi operano."
        " | Venerdì prossimo volo a Roma. | Lunedì scorso si è rotta la macchina."
        " | Ci vediamo sabato. | Il mese prossimo comincio il nuovo lavoro."
        " | L'anno scorso ci siamo sposati.",
    ),
    "pt": Language(
        "No dia {} vou para Roma.",
        "O bilhete custa {} euros.",
        "A consulta é às {}.",
        "Amanhã vou ao médico. | Eu a vi ontem. | Depois de amanhã nos mudamos."
        " | Mandei consertar há três dias. | Daqui a duas semanas vou ser operado."
        " | Na próxima sexta-feira vou para Roma. | Na segunda-feira passada o carro quebrou."
        " | Nos vemos no sábado. | No próximo mês começo o novo trabalho."
        " | No ano passado nos casamos.",
    ),
    "nl": Language(
        "Op {} vlieg ik naar Rome.",
        "Het kaartje kost {} euro.",
        "De afspraak is om {}.",
        "Morgen ga ik naar de dokter. | Ik heb haar gisteren gezien. | Overmorgen verhuizen we."
        " | Ik heb het drie dagen geleden laten repareren. | Over twee weken word ik geopereerd."
        " | Volgende vrijdag vlieg ik naar Rome. | Afgelopen maandag ging de auto stuk."
        " | We zien elkaar op zaterdag. | Volgende maand begin ik met mijn nieuwe baan."
        " | Vorig jaar zijn we getrouwd.",
    ),
    "sv": Language(
        "Den {} flyger jag till Rom.",
        "Biljetten kostar {} kronor.",
        "Mötet är klockan {}.",
        "I morgon går jag till läkaren. | Jag såg henne igår. | I övermorgon flyttar vi."
        " | Jag lät laga den för tre dagar sedan. | Om två veckor ska jag opereras."
        " | Nästa fredag flyger jag till Rom. | Förra måndagen gick bilen sönder."
        " | Vi ses på lördag. | Nästa månad börjar jag mitt nya jobb."
        " | Förra året gifte vi oss.",
    ),
    "da": Language(
        "Den {} flyver jeg til Rom.",
        "Billetten koster {} kroner.",
        "Mødet er klokken {}.",
        "I morgen skal jeg til lægen. | Jeg så hende i går. | I overmorgen flytter vi."
        " | Jeg fik den repareret for tre dage siden. | Om to uger skal jeg opereres."
        " | Næste fredag flyver jeg til Rom. | Sidste mandag gik bilen i stykker."
        " | Vi ses på lørdag. | Næste måned begynder jeg på mit nye arbejde."
        " | Sidste år blev vi gift.",
    ),
    "fi": Language(
        "Lennän Roomaan {}.",
        "Lippu maksaa {} euroa.",
        "Tapaaminen on kello {}.",
        "Huomenna menen lääkäriin. | Näin hänet eilen. | Ylihuomenna muutamme."
        " | Korjautin sen kolme päivää sitten. | Minut leikataan kahden viikon päästä."
        " | Ensi perjantaina lennän Roomaan. | Viime maanantaina auto hajosi."
        " | Tavataan lauantaina. | Ensi kuussa aloitan uuden työn."
        " | Viime vuonna menimme naimisiin.",
    ),
    "pl": Language(
        "Lecę do Rzymu {}.",
        "Bilet kosztuje {} złotych.",
        "Wizyta jest o {}.",
        "Jutro idę do lekarza. | Widziałem ją wczoraj. | Pojutrze się przeprowadzamy."
        " | Oddałem to do naprawy trzy dni temu. | Za dwa tygodnie mam operację."
        " | W przyszły piątek lecę do Rzymu. | W zeszły poniedziałek zepsuł się samochód."
        " | Spotykamy się w sobotę. | W przyszłym miesiącu zaczynam nową pracę."
        " | W zeszłym roku wzięliśmy ślub.",
    ),
    "cs": Language(
        "Letím do Říma {}.",
        "Lístek stojí {} korun.",
        "Schůzka je v {}.",
        "Zítra jdu k lékaři. | Viděl jsem ji včera. | Pozítří se stěhujeme."
        " | Před třemi dny jsem to dal opravit. | Za dva týdny mám operaci."
        " | Příští pátek letím do Říma. | Minulé pondělí se rozbilo auto."
        " | Sejdeme se v sobotu. | Příští měsíc nastupuji do nové práce."
        " | Minulý rok jsme se vzali.",
    ),
    "ru": Language(
        "Я лечу в Рим {}.",
        "Билет стоит {} рублей.",
        "Встреча в {}.",
        "Завтра я иду к врачу. | Я видел её вчера. | Послезавтра мы переезжаем."
        " | Три дня назад я отдал его в ремонт. | Через две недели у меня операция."
        " | В следующую пятницу я лечу в Рим. | В прошлый понедельник сломалась машина."
        " | Встречаемся в субботу. | В следующем месяце я начинаю новую работу."
        " | В прошлом году мы поженились.",
    ),
    "uk": Language(
        "Я лечу до Рима {}.",
        "Квиток коштує {} гривень.",
        "Зустріч о {}.",
        "Завтра я йду до лікаря. | Я бачив її вчора. | Післязавтра ми переїжджаємо."
        " | Три дні тому я віддав його в ремонт. | Через два тижні в мене операція."
        " | Наступної п'ятниці я лечу до Рима. | Минулого понеділка зламалася машина."
        " | Зустрічаємося в суботу. | Наступного місяця я починаю нову роботу."
        " | Минулого року ми одружилися.",
    ),
    "tr": Language(
        "{} tarihinde Roma'ya uçuyorum.",
        "Biletin fiyatı {} lira.",
        "Randevu saat {}.",
        "Yarın doktora gidiyorum. | Onu dün gördüm. | Öbür gün taşınıyoruz."
        " | Üç gün önce tamir ettirdim. | İki hafta sonra ameliyat olacağım."
        " | Gelecek cuma Roma'ya uçuyorum. | Geçen pazartesi araba bozuldu."
        " | Cumartesi günü buluşuyoruz. | Gelecek ay yeni işe başlıyorum."
        " | Geçen yıl evlendik.",
    ),
    "hu": Language(
        "{} Rómába repülök.",
        "A jegy {} forint.",
        "A találkozó {} órakor lesz.",
        "Holnap orvoshoz megyek. | Tegnap láttam őt. | Holnapután költözünk."
        " | Három nappal ezelőtt megjavíttattam. | Két hét múlva megműtenek."
        " | Jövő pénteken Rómába repülök. | Múlt hétfőn elromlott az autó."
        " | Szombaton találkozunk. | Jövő hónapban kezdem az új munkát."
        " | Tavaly házasodtunk össze.",
    ),
    "ro": Language(
        "Pe {} zbor la Roma.",
        "Biletul costă {} lei.",
        "Întâlnirea este la ora {}.",
        "Mâine merg la doctor. | Am văzut-o ieri. | Poimâine ne mutăm."
        " | L-am dat la reparat acum trei zile. | Peste două săptămâni mă operez."
        " | Vinerea viitoare zbor la Roma. | Lunea trecută s-a stricat mașina."
        " | Ne vedem sâmbătă. | Luna viitoare încep noul serviciu."
        " | Anul trecut ne-am căsătorit.",
    ),
    "ar": Language(
        "سأسافر إلى روما في {}.",
        "سعر التذكرة {} يورو.",
        "الموعد في الساعة {}.",
        "غدًا سأذهب إلى الطبيب. | رأيتها أمس. | بعد غد سننتقل إلى بيت جديد."
        " | أصلحته قبل ثلاثة أيام. | سأجري عملية بعد أسبوعين."
        " | سأسافر إلى روما يوم الجمعة القادمة. | تعطلت السيارة يوم الاثنين الماضي."
        " | نلتقي يوم السبت. | سأبدأ عملي الجديد الشهر القادم."
        " | تزوجنا السنة الماضية.",
    ),
    "he": Language(
        "אני טס לרומא ב-{}.",
        "הכרטיס עולה {} שקלים.",
        "הפגישה בשעה {}.",
        "מחר אני הולך לרופא. | ראיתי אותה אתמול. | מחרתיים אנחנו עוברים דירה."
        " | תיקנתי את זה לפני שלושה ימים. | בעוד שבועיים יש לי ניתוח."
        " | ביום שישי הבא אני טס לרומא. | ביום שני שעבר התקלקלה המכונית."
        " | ניפגש ביום שבת. | בחודש הבא אני מתחיל לעבוד."
        " | התחתנו בשנה שעברה.",
    ),
    "hi": Language(
        "{} को मैं रोम जा रहा हूँ।",
        "टिकट की कीमत {} रुपये है।",
        "मुलाक़ात {} बजे है।",
        "कल मैं डॉक्टर के पास जाऊँगा। | मैंने उसे कल देखा था। | परसों हम घर बदल रहे हैं।"
        " | मैंने इसे तीन दिन पहले ठीक करवाया। | दो सप्ताह में मेरा ऑपरेशन है।"
        " | अगले शुक्रवार को मैं रोम जाऊँगा। | पिछले सोमवार को गाड़ी ख़राब हो गई।"
        " | हम शनिवार को मिलेंगे। | अगले महीने मैं नई नौकरी शुरू करूँगा।"
        " | पिछले साल हमारी शादी हुई।",
    ),
    "ja": Language(
        "{}にローマへ行きます。",
        "切符は{}円です。",
        "予約は{}です。",
        "明日、医者に行きます。 | 昨日彼女に会いました。 | 明後日引っ越します。"
        " | 三日前に修理してもらいました。 | 二週間後に手術を受けます。"
        " | 来週の金曜日にローマへ行きます。 | 先週の月曜日に車が壊れました。"
        " | 土曜日に会いましょう。 | 来月、新しい仕事を始めます。"
        " | 去年結婚しました。",
    ),
    "ko": Language(
        "{}에 로마에 갑니다.",
        "표는 {} 원입니다.",
        "약속은 {}입니다.",
        "내일 병원에 갑니다. | 어제 그녀를 봤어요. | 모레 이사합니다."
        " | 3일 전에 수리했어요. | 2주 후에 수술을 받아요."
        " | 다음 주 금요일에 로마에 가요. | 지난 월요일에 차가 고장 났어요."
        " | 토요일에 만나요. | 다음 달에 새 일을 시작해요."
        " | 작년에 결혼했어요.",
    ),
    "zh": Language(
        "我{}去罗马。",
        "票价是{}块。",
        "预约在{}。",
        "明天我去看医生。 | 我昨天见过她。 | 后天我们搬家。"
        " | 三天前我把它修好了。 | 两周后我要做手术。"
        " | 下周五我飞罗马。 | 这周一车坏了。"
        " | 我们星期六见面。 | 下个月我开始新工作。"
        " | 我们去年结婚了。",
    ),
    "th": Language(
        "ฉันจะไปโรมวันที่ {}",
        "ตั๋วราคา {} บาท",
        "นัดเวลา {}",
        "พรุ่งนี้ฉันจะไปหาหมอ | ฉันเจอเธอเมื่อวาน | มะรืนนี้เราจะย้ายบ้าน"
        " | ฉันซ่อมมันสามวันที่แล้ว | ในอีกสองสัปดาห์ฉันจะผ่าตัด"
        " | วันศุกร์หน้าฉันจะไปโรม | วันจันทร์ที่แล้วรถเสีย"
        " | เจอกันวันเสาร์ | เดือนหน้าฉันเริ่มงานใหม่"
        " | เราแต่งงานกันปีที่แล้ว",
    ),
    "vi": Language(
        "Tôi bay đến Rome vào {}.",
        "Vé giá {} đồng.",
        "Cuộc hẹn lúc {}.",
        "Ngày mai tôi đi khám bác sĩ. | Tôi gặp cô ấy hôm qua. | Ngày kia chúng tôi chuyển nhà."
        " | Tôi đã sửa nó ba ngày trước. | Hai tuần nữa tôi phẫu thuật."
        " | Thứ sáu tuần sau tôi bay đến Rome. | Thứ hai tuần này xe bị hỏng."
        " | Chúng ta gặp nhau thứ bảy. | Tháng sau tôi bắt đầu công việc mới."
        " | Năm ngoái chúng tôi kết hôn.",
    ),
    "id": Language(
        "Saya terbang ke Roma pada {}.",
        "Tiketnya {} rupiah.",
        "Janji temu pukul {}.",
        "Besok saya ke dokter. | Saya melihatnya kemarin. | Lusa kami pindah rumah."
        " | Saya memperbaikinya tiga hari yang lalu. | Dua minggu lagi saya dioperasi."
        " | Jumat depan saya terbang ke Roma. | Senin lalu mobil rusak."
        " | Kita bertemu hari Sabtu. | Bulan depan saya mulai pekerjaan baru."
        " | Tahun lalu kami menikah.",
    ),
}


@dataclass(frozen=True)
class Sentence:
    """A sentence, a value that it states, and another value that it doesn't."""

    text: str
    true: Value
    false: Value


def sentences(code: str) -> Iterator[Sentence]:
    """Yield a language's sentences."""
    language = LANGUAGES[code]
    for text, (true, false) in zip(language.relative.split(" | "), RELATIVE, strict=True):
        yield Sentence(text, true, false)
    for day in DAYS:
        for form in ("long", "full", "short"):
            yield _on(day, language, format_date(day, form, locale=code))
    for day in DAYS_OF_YEAR:
        skeleton = "d MMMM" if code not in ("ja", "zh", "ko", "hu") else None
        long = format_date(day, "long", locale=code)
        written = format_date(day, skeleton, locale=code) if skeleton else _without_year(long)
        yield _on(day, language, written)
    for time in TIMES:
        written = format_time(time, "short", locale=code)
        other = time.replace(hour=(time.hour + 1) % 24)
        yield Sentence(language.at.format(written), time, other)
    for number, spelled in zip(NUMBERS, _spelled()[code], strict=True):
        yield Sentence(language.costs.format(spelled), number, number + _step(number))
    for amount in AMOUNTS:
        written = format_decimal(amount, locale=code)
        yield Sentence(language.costs.format(written), amount, amount + _step(int(amount)))


def is_refused(text: str, value: Value) -> bool:
    """Return whether a field with this value is refused if the record cites the text."""
    claim = Claim(RecordId("travel", "trips", "rome"), [1], {"value": value})
    return any(one.blocking for one in ungrounded([claim], {1: Source(1, text, AT)}, "UTC"))


@functools.cache
def _spelled() -> Mapping[str, Sequence[str]]:
    """Return each language's words for the numbers."""
    lines = Path(__file__).with_name("numbers.txt").read_text().splitlines()[1:]
    return {code: words.split(" | ") for code, words in (line.split(": ") for line in lines)}


def _on(day: datetime.date, language: Language, written: str) -> Sentence:
    return Sentence(language.on_day.format(written), day, day + datetime.timedelta(days=2))


def _without_year(text: str) -> str:
    for mark in ("年", "년 ", ". "):
        if mark in text:
            return text.partition(mark)[2].strip()
    return text


def _step(number: int) -> int:
    """Return what makes a different number of another: a change of its second digit."""
    return int(3 * 10 ** max(0, math.floor(math.log10(number)) - 1))
