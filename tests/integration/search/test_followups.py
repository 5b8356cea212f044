"""Follow-up questions are completed by the turns before them; others are left unchanged."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.integrations.mcp import tools
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log import entry_log
from memory.log.models.entries import EntryKind
from memory.recall.api.turns import MAX_BYTES, MAX_MESSAGES
from memory.recall.search.finding import find
from memory.recall.search.followups import Turn, complete
from tests.snippets import requests_in
from tests.unit.search.test_followups import turns_of

if TYPE_CHECKING:
    from memory.integrations.mcp.api import Api

pytestmark = pytest.mark.django_db

TOP = 5
LEAST_WITH, MAX_WITHOUT = 0.9, 0.4

# Ada's messages: sentences, and the people, towns and things that each is about. The tests ask
# about the first of them. There are more similar entries than are examined, and the newest of
# equals come first: without the turns before a question, another entry is more likely to be found.
_SAID = [
    (
        """
        study: {0} studied {1} in {2}.
        birthday: {0} has a birthday on {3}.
        coffee: {0} drinks {4}.
        car: {0} drives {5}.
        job: {0} has a job as {6}.
        brother: The brother of {0} is called {7}.
        food: {0} cannot eat {8}.
        wish: {0} wants {9} for Christmas.
        """,
        """
        Gina|economics|Porto|14 September|black coffee|a Fiat|a dancer|Paulo|mussels|a kite
        Jon|law|Vienna|3 November|oat milk|an old Volvo|a banker|Nils|celery|a drill
        my sister|nursing|Graz|9 May|espresso|a van|a nurse|Max|peanuts|a tent
        my boss|design|Bonn|2 June|cocoa|a Tesla|a director|Olaf|garlic|a pen
        Ines|history|Madrid|1 March|green tea|a Seat|a guide|Luis|prawns|a scarf
        Ravi|physics|Delhi|8 July|chai|a scooter|a pilot|Arun|beef|a globe
        Olga|music|Riga|6 April|latte|a Lada|a cellist|Oleg|nuts|a lamp
        Mona|biology|Basel|5 May|water|a Jeep|a baker|Urs|eggs|a vase
        Tariq|medicine|Cairo|4 August|mint tea|a BMW|a surgeon|Omar|pork|a book
        Lena|maths|Kiel|7 October|mocha|a Golf|an actuary|Finn|wheat|a hat
        Sofia|botany|Lund|8 December|cola|a Saab|a gardener|Erik|soya|a spade
        Hakim|art|Tunis|2 April|cider|a Dacia|a potter|Sami|fish|a wheel
        Greta|drama|Linz|6 February|sherry|a Mini|an actress|Hans|honey|a mask
        """,
    ),
    (
        """
        hotel: In {0} we stayed at the hotel {1}.
        food: In {0} I ate {2}.
        museum: The museum in {0} was {3}.
        shopping: In {0} I bought {4}.
        weather: The weather in {0} was {5}.
        """,
        """
        Rome|Artemide|carbonara|crowded|gloves|hot
        Oslo|Citybox|reindeer|closed|a sweater|cold
        Porto|Infante|cod|tiny|tawny|foggy
        Prague|Josef|dumplings|dusty|a puppet|windy
        Dublin|Clarence|oysters|lovely|a cap|rainy
        Athens|Plaka|souvlaki|huge|sandals|sunny
        Seville|Alcazar|gazpacho|cool|a fan|dry
        Turin|Sitea|gnocchi|empty|chocolate|mild
        """,
    ),
    (
        """
        groceries: In {0} I spent {1} euros on groceries.
        fuel: In {0} I spent {2} euros on fuel.
        clothes: In {0} I spent {3} euros on clothes.
        eating out: In {0} I spent {4} euros in restaurants.
        phone: In {0} I spent {5} euros on the telephone.
        gifts: In {0} I spent {6} euros on gifts.
        """,
        """
        March|310|90|120|75|31|50
        April|280|95|40|60|33|15
        May|295|70|200|85|35|25
        June|305|60|10|95|37|35
        """,
    ),
    (
        """
        name: My {0} is {1}.
        price: The {1} cost me {2} euros.
        date: I bought the {1} on {3}.
        shop: The {1} is from {4}.
        repair: The {1} was repaired by {5}.
        loan: I lent the {1} to {6}.
        place: The {1} is kept in the {7}.
        """,
        """
        guitar|Gibson|1900|12 February 2024|a music shop|Schmidt|Bert|cellar
        bike|Canyon|2400|3 April 2023|a web shop|Kurbel|Dora|garage
        camera|Leica|3100|9 May 2022|a photo shop|Blende|Emil|safe
        watch|Junghans|700|5 July 2021|a jeweller's shop|Unruh|Frida|drawer
        sofa|Ektorp|400|8 August 2020|a furniture shop|Holz|Gustav|attic
        boat|Optimist|950|1 June 2019|a sailing shop|Kiel|Hanna|shed
        tent|Hilleberg|880|2 March 2018|an outdoor shop|Zelt|Ida|closet
        oven|Smeg|1200|4 October 2017|a kitchen shop|Herd|Karl|pantry
        drone|Parrot|620|3 May 2016|a toy shop|Kreisel|Lotte|loft
        harp|Camac|4300|6 March 2015|a string shop|Saite|Moritz|parlour
        scooter|Vespa|3900|7 May 2014|a motor shop|Ritzel|Nora|yard
        telescope|Bresser|540|9 July 2013|an optics shop|Linse|Otto|study
        """,
    ),
    (
        """
        breed: Our pet {0} is a {1}.
        food: {0} eats {2}.
        fear: {0} is afraid of {3}.
        vet: {0} was vaccinated by {4}.
        sleep: {0} sleeps {5}.
        """,
        """
        Toby|beagle|salmon kibble|thunder|doctor Vogt|in a basket
        Minka|tabby|tuna|dogs|doctor Reh|on the shelf
        Hector|parrot|seeds|the hoover|doctor Star|on a perch
        Lola|rabbit|carrots|foxes|doctor Hase|in the hay
        Bruno|poodle|rice|fireworks|doctor Wolf|on my bed
        Cleo|hamster|grain|owls|doctor Maus|in a tunnel
        Samson|pony|oats|flags|doctor Ross|in a stable
        Pablo|donkey|straw|water|doctor Esel|on the grass
        Frida|tortoise|lettuce|crows|doctor Panzer|under a box
        Nero|ferret|mice|vacuums|doctor Pelz|in a sock
        Lucky|goat|leaves|trains|doctor Horn|on the roof
        """,
    ),
    (
        """
        event: On {0} I {1}.
        dinner: On {0} I ate with {2}.
        dress: On {0} I wore {3}.
        morning: On {0} I had {4} in the morning.
        """,
        """
        7 June 2025|saw Radiohead|Tomas|my leather jacket|a migraine
        20 July 2024|danced at a wedding|Ulla|green silk|a haircut
        2 May 2023|ran the marathon|Vera|running shoes|an interview
        9 August 2022|met the mayor|Willi|a grey suit|a flat tyre
        1 March 2021|moved house|Xenia|overalls|a fever
        5 April 2020|baked bread|Yuri|an apron|a nosebleed
        3 October 2019|flew a kite|Zoe|a raincoat|an exam
        """,
    ),
    (
        """
        doctor: {1} prescribed {0}.
        dose: I take {2} of {0} every day.
        side effects: {0} has side effects: {3}.
        pharmacy: I get {0} from the pharmacy {4}.
        """,
        """
        Ramipril|Brandt|5 mg|a dry cough|Linden
        Metformin|Huber|500 mg|nausea|Rosen
        Sertraline|Kranz|50 mg|drowsiness|Adler
        Simvastatin|Lang|20 mg|sore muscles|Engel
        Pantoprazole|Moll|40 mg|headaches|Markt
        Cetirizine|Nies|10 mg|a dry mouth|Park
        Insulin|Orth|12 units|low sugar|Stern
        Bisoprolol|Pohl|3 mg|cold hands|Turm
        Omeprazole|Quast|30 mg|a bloated belly|Ufer
        Naproxen|Reich|250 mg|heartburn|Wald
        """,
    ),
    (
        """
        hobby: {0} spielt {1} im Verein.
        price: {2} hat {3} Euro gekostet.
        """,
        """
        Meine Schwester|Cello|Der Urlaub an der Ostsee|1300
        Mein Bruder|Handball|Die Reparatur der Heizung|800
        Mein Onkel|Skat|Der Führerschein|2900
        Meine Tante|Tennis|Der Kühlschrank|650
        Mein Opa|Schach|Der Zaun|720
        Meine Oma|Bridge|Das Klavier|1800
        Mein Chef|Golf|Der Laptop|990
        """,
    ),
    (
        """
        home: {0} habite à {1}.
        trabajo: {2} trabaja en {3}.
        """,
        """
        Chloé|Lyon|Diego|Sevilla
        Marc|Lille|Carmen|Cádiz
        Luc|Nice|Pablo|Lugo
        Anne|Metz|Rosa|Vigo
        Paul|Brest|Raúl|Soria
        Inès|Dijon|Elena|Jaén
        Rémi|Tours|Hugo|Ávila
        """,
    ),
    (
        """
        hotel: {0}のホテルは{1}にありました。
        """,
        """
        東京|新宿
        大阪|梅田
        京都|祇園
        奈良|三条
        札幌|大通
        福岡|天神
        神戸|三宮
        """,
    ),
]
TRIPS = [
    {"type": "Trip", "key": to.lower(), "data": {"to": to, "seat": seat, "airline": airline}}
    for to, seat, airline in [
        ("Lisbon", "14A", "TAP"),
        ("Paris", "3C", "Air France"),
        ("Zurich", "9F", "Swiss"),
        ("Warsaw", "21B", "LOT"),
        ("Helsinki", "7D", "Finnair"),
        ("Doha", "30K", "Qatar"),
        ("Tallinn", "11E", "Nordica"),
    ]
]

# The question, the turns before it, and what must be found.
FOLLOWED = [
    ("And in May?", "u: What did I spend on groceries in March?|a: 310 euros.", "May groceries"),
    (
        "And in April?",
        "u: What did I spend on groceries in March?|a: 310 euros.|u: And in May?|a: 295 euros.",
        "April groceries",
    ),
    ("What about March?", "u: Groceries in May, how much?|a: It was 295.", "March groceries"),
    ("And on fuel?", "u: How many euros were groceries in March?|a: 310 euros.", "March fuel"),
    ("Where did she study?", "u: What is Gina's job?|a: She is a dancer.", "Gina study"),
    ("When is her birthday?", "u: What is Gina's job?|a: She is a dancer.", "Gina birthday"),
    ("What about her brother?", "u: What is Gina's job?|a: A dancer.", "Gina brother"),
    ("And Jon?", "u: What does Gina drink?|a: Black coffee.", "Jon coffee"),
    ("What does he drive?", "u: When is Jon's birthday?|a: In November.", "Jon car"),
    (
        "When is his birthday?",
        "u: What is Jon's job?|a: He is a banker.|u: Where did he study?|a: In Vienna.",
        "Jon birthday",
    ),
    ("What should I give him?", "u: I meet Jon before Christmas.|a: Nice.", "Jon wish"),
    ("And what was his job?", "u: When is Jon's birthday?|a: On 3 November.", "Jon job"),
    ("And my boss?", "u: What did my sister study?|a: Nursing.", "my boss study"),
    ("What does he drink?", "u: Jon wants a drill for Christmas.|a: Noted.", "Jon coffee"),
    ("What does she drive?", "u: What does my sister drink?|a: Espresso.", "my sister car"),
    ("What can she not eat?", "u: I cook for my sister tonight.", "my sister food"),
    ("What does he want?", "u: What does my boss drive?|a: A Tesla.", "my boss wish"),
    ("Where did he study?", "u: Does my boss want a pen?|a: Yes.", "my boss study"),
    ("Where did we stay there?", "u: How was the food in Rome?|a: Carbonara.", "Rome hotel"),
    ("And in Oslo?", "u: Which hotel did we stay at in Rome?|a: The Artemide.", "Oslo hotel"),
    ("What did I eat there?", "u: Where did we stay in Oslo?|a: At the Citybox.", "Oslo food"),
    ("How was the museum there?", "u: I go to Oslo again.|a: How nice!", "Oslo museum"),
    ("What did I buy there?", "u: Our hotel in Porto was fine.|a: Yes.", "Porto shopping"),
    ("How was the weather?", "u: What did I buy in Porto?|a: Tawny.", "Porto weather"),
    ("What did it cost?", "u: Which guitar do I own?|a: A Gibson.", "guitar price"),
    ("When did I buy it?", "u: Which guitar do I own?|a: A Gibson.", "guitar date"),
    ("From which shop?", "u: Which guitar do I own?|a: A Gibson.", "guitar shop"),
    ("Who repaired that?", "u: Which guitar do I own?|a: A Gibson.", "guitar repair"),
    ("And the bike?", "u: What did the guitar cost?|a: 1,900 euros.", "bike name"),
    ("To whom did I lend it?", "u: What did the Canyon cost?|a: 2,400 euros.", "bike loan"),
    ("Where is it kept?", "u: The Canyon was repaired.|a: By Kurbel.", "bike place"),
    ("How much did I pay?", "u: Which bike do I have?|a: A Canyon.", "bike price"),
    (
        "What happened that day in the morning?",
        "u: When did I see Radiohead?|a: On 7 June 2025.",
        "7 June 2025 morning",
    ),
    ("Who did I eat with then?", "u: Radiohead was on 7 June 2025?", "7 June 2025 dinner"),
    ("What did I wear then?", "u: The wedding was on 20 July 2024?", "20 July 2024 dress"),
    ("How much of it do I take?", "u: What did Brandt prescribe?|a: Ramipril.", "Ramipril dose"),
    ("Side effects?", "u: Brandt prescribed ramipril.|a: I see.", "Ramipril side effects"),
    ("From which pharmacy?", "u: What did Brandt prescribe?|a: Ramipril.", "Ramipril pharmacy"),
    ("Who prescribed that?", "u: Metformin makes me sick.|a: Oh no.", "Metformin doctor"),
    ("What does he eat?", "u: Which breed is Toby?|a: A beagle.", "Toby food"),
    ("What is he afraid of?", "u: Which breed is Toby?|a: A beagle.", "Toby fear"),
    ("And the vaccination?", "u: Which breed is Toby?|a: A beagle.", "Toby vet"),
    ("And Minka?", "u: What does Toby eat?|a: Salmon kibble.", "Minka food"),
    ("Where does she sleep?", "u: What does Minka eat?|a: Tuna.", "Minka sleep"),
    ("And the dose?", "u: From which pharmacy do I get Metformin?|a: Rosen.", "Metformin dose"),
    ("And on clothes?", "u: What did I spend on fuel in March?|a: 90 euros.", "March clothes"),
    ("Who has it now?", "u: I lent the Gibson to somebody.|a: Yes.", "guitar loan"),
    ("What can he not eat?", "u: Jon comes for dinner.|a: Lovely.", "Jon food"),
    ("What did she study?", "u: Gina lives in Lisbon.|a: I see.", "Gina study"),
    ("Which seat did I have?", "u: Was there a flight to Lisbon?|a: Yes.", "lisbon trip"),
    ("Which airline was it?", "u: My trip to Lisbon, please.|a: Seat 14A.", "lisbon trip"),
    ("Was spielt sie?", "u: Wie geht es meiner Schwester?|a: Gut.", "Meine Schwester hobby"),
    ("Was hat das gekostet?", "u: Wie war der Urlaub?|a: Schön.", "Meine Schwester price"),
    ("Elle habite où ?", "u: Parle-moi de Chloé.|a: C'est ta cousine.", "Chloé home"),
    ("¿Y dónde trabaja él?", "u: ¿Quién es Diego?|a: Tu primo.", "Chloé trabajo"),
    ("どこでしたか？", "u: 東京のホテルは?|a: はい。", "東京 hotel"),
]
# Complete questions, with more terms than a follow-up.
COMPLETE = [
    "What did Jon study in Vienna before he was a banker?",
    "Which hotel did we stay at in Rome last year?",
    "How many euros did I spend on groceries in March?",
    "When I bought the guitar, what did it cost me in the shop?",
    "Did my sister say that she likes peanuts and milk?",
    "Wann hat Jon seine Arbeit verloren?",
    "Où habite ma cousine Chloé aujourd'hui ?",
    "東京のホテルはどこにありましたか。教えてください。",
]
# Complete questions that are as short as follow-ups, and what they ask for.
SHORT = [
    ("Where did {} study?", "study", "Gina|Jon|my boss|Ravi"),
    ("What does {} drink?", "coffee", "Jon|my sister|Ines|Olga"),
    ("What can {} not eat?", "food", "Gina|my boss|Mona"),
    ("What does {} want for Christmas?", "wish", "Jon|Ravi|my sister"),
    ("Which hotel in {}?", "hotel", "Rome|Oslo|Prague"),
    ("How was the weather in {}?", "weather", "Oslo|Porto"),
    ("Where does {} sleep?", "sleep", "Toby|Minka"),
]


def sentences() -> dict[str, str]:
    """Return the message, with its speaker or subject and kind: "Gina study"."""
    found = {}
    for forms, rows in _SAID:
        for row in rows.split("\n"):
            values = row.strip().split("|")
            for form in filter(None, map(str.strip, forms.split("\n"))):
                name, _, sentence = form.partition(": ")
                if row.strip():
                    said = sentence.format(*values)
                    found[f"{values[0]} {name}"] = said[0].upper() + said[1:]
    return found


@pytest.fixture(scope="module")
def ada(populate_module: Callable[[Callable[[], MemoryUser]], MemoryUser]) -> MemoryUser:
    """The user with all her messages, and one record: the same for all tests here."""

    def make() -> MemoryUser:
        workspace = Workspace.objects.create(name="follow-ups")
        user = create_user(workspace, "ada", time_zone="Europe/Berlin", metadata=None)
        messages = [
            entry_log.Draft(kind=EntryKind.MESSAGE, content=said, role="user", session_id=name)
            for name, said in sentences().items()
        ]
        records = [entry_log.Draft(kind=EntryKind.RECORD, data=trip) for trip in TRIPS]
        entry_log.append(user, [*messages, *records], source="test")
        return user

    return populate_module(make)


@pytest.fixture(autouse=True)
def by_meaning(settings: Settings) -> None:
    settings.UAC_EMBEDDINGS = "wordllama"


def is_found(ada: MemoryUser, question: str, turns: list[Turn], wanted: str) -> bool:
    names = [*sentences(), *(f"{trip['key']} trip" for trip in TRIPS)]
    numbers = {name: number for number, name in enumerate(names, 1)}
    hits = find(ada, complete(question, turns), top_k=TOP).hits
    return numbers[wanted] in [hit.entry.seq for hit in hits]


def test_most_follow_ups_are_found_by_the_turns_before_them_and_few_without(
    ada: MemoryUser,
) -> None:
    missed = [
        question
        for question, turns, wanted in FOLLOWED
        if not is_found(ada, question, turns_of(turns), wanted)
    ]
    without = [question for question, _, wanted in FOLLOWED if is_found(ada, question, [], wanted)]

    assert len(FOLLOWED) >= 40
    assert 1 - len(missed) / len(FOLLOWED) >= LEAST_WITH, missed
    assert len(without) / len(FOLLOWED) <= MAX_WITHOUT, without


@pytest.mark.parametrize("question", COMPLETE)
def test_complete_question_finds_the_same_after_any_turns(ada: MemoryUser, question: str) -> None:
    alone = find(ada, question)
    before = find(ada, complete(question, turns_of(FOLLOWED[0][1])))

    assert alone.hits
    assert [(hit.entry.seq, hit.score) for hit in before.hits] == [
        (hit.entry.seq, hit.score) for hit in alone.hits
    ]
    assert (before.terms, before.question.taken_as) == (alone.terms, None)


def test_short_complete_question_is_found_after_unrelated_turns(ada: MemoryUser) -> None:
    asked = [
        (form.format(name), f"{name} {kind}")
        for form, kind, names in SHORT
        for name in names.split("|")
    ]
    missed = [
        (question, turns)
        for number, (question, wanted) in enumerate(asked)
        for _, turns, _ in FOLLOWED[number % 5 :: 19]
        if not is_found(ada, question, turns_of(turns), wanted)
    ]

    assert len(missed) <= 1, missed


def test_own_terms_weigh_more_than_terms_of_turns(ada: MemoryUser, settings: Settings) -> None:
    settings.UAC_EMBEDDINGS = "off"
    question = complete("And in Oslo?", turns_of("u: What did I buy? Gloves?"))

    found = find(ada, question, explain=True)

    assert "glove" in found.terms
    parts = {
        term.term: term.score
        for hit in found.hits
        if hit.explanation is not None
        for term in hit.explanation.terms
    }
    # "Oslo" is in five entries, "gloves" in one: in the question itself, they would weigh more.
    assert parts["oslo"] > parts["glove"] > 0
    asked = find(ada, "Gloves in Oslo?", explain=True).hits[0].explanation
    assert asked is not None
    assert {term.term for term in asked.terms} == {"glove"}


def test_person_named_earlier_is_no_speaker(user: MemoryUser, settings: Settings) -> None:
    settings.UAC_EMBEDDINGS = "off"
    drafts = [
        entry_log.Draft(
            kind=EntryKind.MESSAGE, content=content, speaker=speaker, session_id=content
        )
        for speaker, content in (("Ada", "Dinner in May cost 40"), ("Bob", "Dinner in May cost 55"))
    ]
    entry_log.append(user, drafts, source="test")
    turns = turns_of("u: How much did the dinner with Bob cost in April?")

    question = complete("And in May?", turns)

    assert "Bob" in (question.taken_as or "")
    for asked, named in ((question, set[str]()), ("What did Bob pay in May?", {"Bob"})):
        hits = find(user, asked, explain=True).hits
        assert {
            hit.entry.speaker for hit in hits if hit.explanation and hit.explanation.speaker_named
        } == named


class TestApi:
    """The field `messages` of a search and of a context."""

    MESSAGES = [
        {"role": "user", "content": "Which guitar do I own?"},
        {"role": "assistant", "content": "A Gibson."},
    ]

    @pytest.fixture
    def workspace(self, ada: MemoryUser) -> Workspace:
        return Workspace.objects.get(pk=ada.workspace_id)

    def found(self, api: APIClient, path: str = "search", **body: Any) -> Any:
        response = api.post(f"/v1/users/ada/{path}/", body, format="json")
        assert response.status_code == 200, response.content
        return response.json()

    def test_the_answer_says_what_the_question_was_taken_to_mean(self, api: APIClient) -> None:
        answer = self.found(api, query="When did I buy it?", messages=self.MESSAGES)

        assert answer["taken_as"] == "When did I buy it? guitar Gibson"
        assert answer["terms"] == ["buy", "guitar", "gibson"]
        assert "I bought the Gibson on 12 February 2024." in [
            hit["text"] for hit in answer["hits"][:TOP]
        ]

    @pytest.mark.parametrize("body", [{}, {"messages": []}])
    def test_without_turns_it_is_left_as_it_is(self, api: APIClient, body: Any) -> None:
        answer = self.found(api, query="When did I buy it?", **body)

        assert answer == self.found(api, query="When did I buy it?")
        assert answer["taken_as"] is None

    def test_turns_without_words_are_skipped(self, api: APIClient) -> None:
        turns = [*self.MESSAGES, {"role": "assistant", "content": ""}]
        turns += [{"role": "user", "content": text} for text in ("?!", "\u0301" * 5000, "🎸")]

        answer = self.found(api, query="When did I buy it?", messages=turns)

        assert answer["taken_as"] == "When did I buy it? guitar Gibson"

    def test_a_context_is_of_what_the_query_means(self, api: APIClient) -> None:
        query = "From which shop?"
        answer = self.found(api, "context", query=query, messages=self.MESSAGES, tokens=200)
        alone = self.found(api, "context", query=query, tokens=200)

        assert answer["taken_as"] == "From which shop? guitar Gibson"
        assert "The Gibson is from a music shop." in answer["text"]
        assert alone["taken_as"] is None
        assert "The Gibson is from a music shop." not in alone["text"]
        stable = answer["stable_characters"]
        assert answer["text"][:stable] == alone["text"][: alone["stable_characters"]]
        # Without a query there is nothing for the turns to complete.
        assert self.found(api, "context", messages=self.MESSAGES)["taken_as"] is None

    @pytest.mark.parametrize("path", ["search", "context", "ask"])
    @pytest.mark.parametrize(
        ("messages", "words"),
        [
            ("u: hi", "Send a list, not a string."),
            ({"role": "user"}, "Send a list, not an object."),
            (["hi"], "Send an object, not a string."),
            ([{"role": "user"}], "required"),
            ([{"content": "hi"}], "required"),
            ([{"role": "system", "content": "hi"}], "Choose one of user, assistant."),
            ([{"role": "user", "content": None}], "Send a string, not null."),
            ([{"role": "user", "content": ["hi"]}], "Send a string, not a list."),
            ([{"role": "user", "content": "hi", "name": "x"}], "Unknown field"),
            ([{"role": "user", "content": ""}] * (MAX_MESSAGES + 1), "Send only the newest 50"),
            (
                [{"role": "user", "content": "é" * (MAX_BYTES // 4)}] * 3,
                "Leave out the oldest messages",
            ),
        ],
        ids=lambda value: str(value)[:30],
    )
    def test_wrong_messages_are_refused_by_their_name(
        self, api: APIClient, path: str, messages: Any, words: str
    ) -> None:
        name = "question" if path == "ask" else "query"
        body = {name: "And in May?", "messages": messages}

        response = api.post(f"/v1/users/ada/{path}/", body, format="json")

        assert response.status_code == 400
        assert list(response.json()["errors"]) == ["messages"]
        assert words in str(response.json()["errors"])
        assert len(response.content) < 5000

    def test_as_many_and_as_long_ones_as_are_allowed_are_read(self, api: APIClient) -> None:
        long = "x" * (MAX_BYTES // MAX_MESSAGES)
        turns = [{"role": "user", "content": long}] * (MAX_MESSAGES - 1)
        turns.append({"role": "user", "content": "Which guitar do I own?"})

        answer = self.found(api, query="When did I buy it?", messages=turns)

        assert answer["taken_as"].startswith("When did I buy it? guitar x")

    def test_the_example_of_the_page_is_answered_as_it_is_shown(self, api: APIClient) -> None:
        page = (Path(__file__).parents[3] / "docs" / "search.md").read_text()
        _, (method, path, body), *_ = requests_in(page)
        (shown,) = re.findall(r"`taken_as`: `(.*?)`", page)

        assert (method, path) == ("POST", "users/ada/search/")
        assert isinstance(body, dict)
        assert self.found(api, **body)["taken_as"] == shown


class FakeApi:
    """Records what a tool sends."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    async def post(self, address: str, body: Any, **parameters: object) -> Any:
        self.sent.append((address, body))
        return {}


TOOLS = [("search_memory", "query", "search"), ("get_context", "query", "context")]


@pytest.mark.parametrize(("tool", "name", "path"), [*TOOLS, ("ask", "question", "ask")])
def test_the_tools_of_agents_take_the_turns(tool: str, name: str, path: str) -> None:
    api = FakeApi()
    caller = tools.Caller(cast("Api", api), "ada")
    body = {name: "And in May?", "messages": TestApi.MESSAGES}

    asyncio.run(tools.call(caller, tool, body))

    assert api.sent == [(f"users/ada/{path}/", body)]
    for wrong in (
        [{"role": "system", "content": "x"}],
        [{"role": "user"}],
        [TestApi.MESSAGES[0]] * (MAX_MESSAGES + 1),
    ):
        refused = asyncio.run(tools.call(caller, tool, {**body, "messages": wrong}))
        assert refused.is_error
        assert "messages" in str(refused.content)
    assert len(api.sent) == 1
