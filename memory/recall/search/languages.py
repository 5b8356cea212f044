"""Function words that reveal follow-up questions, in four languages.

These are word lists, not grammars: a follow-up that they don't reveal is left unchanged.
"""

from dataclasses import dataclass

from memory.recall.search.words import MONTHS, STOP_WORDS


def words_of(text: str) -> frozenset[str]:
    """Return the distinct words in a text."""
    return frozenset(text.split())


@dataclass(frozen=True)
class Language:
    """A language's function words, including sets that reveal what a question depends on."""

    function_words: frozenset[str]
    """Words unrelated to a text's topic, including all fields below except the last two."""
    questions: frozenset[str]
    """Words that begin a complete question: question words and auxiliary verbs."""
    first_person: frozenset[str]
    openers: frozenset[str]
    """Words that connect a question to the previous one: and, but."""
    phrases: tuple[tuple[str, ...], ...]
    """Phrases that connect a question to the previous one: what about."""
    persons: frozenset[str]
    things: frozenset[str]
    places: frozenset[str]
    times: frozenset[str]
    determiners: frozenset[str]
    at: frozenset[str]
    """Prepositions used before names of places."""
    towards: frozenset[str]
    """Prepositions used before names of places or people."""
    relations: frozenset[str]
    """Words that refer to people without naming them: sister, boss."""
    dates: frozenset[str]
    """Months, days of the week, holidays."""


def _language(**words: str) -> Language:
    sets = {name: words_of(text) for name, text in words.items() if name != "phrases"}
    phrases = tuple(tuple(line.split()) for line in words["phrases"].split(","))
    parts = [one for name, one in sets.items() if name not in ("relations", "dates")]
    sets["function_words"] = frozenset[str]().union(*parts)
    return Language(phrases=phrases, **sets)


ENGLISH = _language(
    function_words=" ".join(STOP_WORDS) + " much many else us mine ours may might shall must",
    questions="""
        what when where which who whom whose why how is are was were am do does did has have had can
        could will would should shall may
    """,
    first_person="i me my mine we us our ours",
    openers="and also but or so plus",
    phrases="what about,how about,same for,same question for",
    persons="he him his she her hers they them their theirs himself herself themselves",
    things="it its this that these those one ones same former latter",
    places="there",
    times="then",
    determiners="a an the my your our this that these those no some any each every another",
    at="in at near around",
    towards="to from",
    relations="""
        sister brother mother father mom mum dad wife husband partner son daughter cousin aunt uncle
        niece nephew grandmother grandfather grandma grandpa parents kids children friend friends
        girlfriend boyfriend boss manager doctor dentist therapist teacher trainer coach colleague
        colleagues neighbour neighbor neighbours neighbors landlord landlady roommate flatmate
    """,
    dates=" ".join(MONTHS)
    + """
        monday tuesday wednesday thursday friday saturday sunday christmas easter halloween
        thanksgiving summer winter spring autumn
    """,
)
GERMAN = _language(
    function_words="""
        der die das den dem des ein eine einen einem einer eines und oder aber auch in im an am auf
        aus bei beim mit nach von vom vor zu zum zur für über um unter als wie so nicht noch schon
        sehr mal denn doch nur sich war ist sind waren bin hat haben hatte hatten habe wird werden
        wurde wurden kann können konnte soll muss man wer was wann wo warum wieso woher wohin
        welche welcher welches welchen welchem viel viele ich mich mir wir uns
    """,
    questions="""
        wer wen wem was wann wo wie warum wieso woher wohin welche welcher welches welchen welchem
        ist sind war waren hat haben hatte hatten kann können soll wird wurde
    """,
    first_person="ich mich mir mein meine meinen meinem meiner wir uns unser unsere unseren",
    openers="und auch aber oder",
    phrases="was ist mit,wie ist es mit,wie war es mit,wie sieht es mit",
    persons="er ihn ihm sein seine seinen seinem seiner sie ihr ihre ihren ihrem ihrer ihnen",
    things="""
        es das dies diese dieser dieses diesen diesem dasselbe davon dafür damit darüber dazu daran
        darauf
    """,
    places="dort da dorthin dahin",
    times="damals dann danach",
    determiners="""
        der die das den dem des ein eine einen einem einer eines mein meine meinen meinem meiner
        unser unsere unseren dein deine kein keine zum zur vom beim
    """,
    at="in im bei",
    towards="nach zu von aus an",
    relations="""
        schwester bruder mutter vater mama papa frau mann partner sohn tochter cousin cousine tante
        onkel oma opa eltern kinder freund freundin freunde chef chefin arzt ärztin zahnarzt
        zahnärztin lehrer lehrerin kollege kollegin nachbar nachbarin
    """,
    dates="""
        januar februar märz april mai juni juli august september oktober november dezember montag
        dienstag mittwoch donnerstag freitag samstag sonntag weihnachten ostern
    """,
)
FRENCH = _language(
    function_words="""
        le la les l un une des du de d au aux et ou mais aussi à en dans sur pour par avec sans chez
        ce que qu qui quoi quand où comment combien pourquoi quel quelle quels quelles est sont
        était étaient être ai as a avons avez ont avait suis fait se s ne n pas plus très je j me m
        moi nous tu te t vous il y c si
    """,
    questions="""
        que qu qui quoi quand où comment combien pourquoi quel quelle quels quelles est sont était
    """,
    first_person="je j me m moi mon ma mes nous notre nos",
    openers="et mais ou aussi",
    phrases="qu en est il,quid de",
    persons="il elle ils elles lui leur leurs eux son sa ses",
    things="ça cela ceci c celui celle ceux celles même en",
    places="là y",
    times="alors",
    determiners="le la les l un une des du au aux mon ma mes notre nos ton ta tes ce cette ces",
    at="à en dans chez",
    towards="de vers pour",
    relations="""
        soeur sœur frère mère père maman papa femme mari fils fille cousin cousine tante oncle
        parents enfants ami amie amis patron patronne médecin dentiste professeur collègue voisin
        voisine
    """,
    dates="""
        janvier février mars avril mai juin juillet août septembre octobre novembre décembre lundi
        mardi mercredi jeudi vendredi samedi dimanche noël pâques
    """,
)
SPANISH = _language(
    function_words="""
        el la los las un una unos unas de del al a y o pero también en con por para sin sobre que
        qué quién quiénes cuándo dónde cómo cuánto cuánta cuántos cuántas cuál cuáles es son era
        eran fue fueron está están estaba ser he ha has hay había se no sí muy más yo me mi mí
        nos te tu
    """,
    questions="""
        qué quién quiénes cuándo dónde cómo cuánto cuánta cuántos cuántas cuál cuáles es son era fue
        está
    """,
    first_person="yo me mi mis mí nos nuestro nuestra nosotros",
    openers="y pero o también",
    phrases="qué tal,qué hay de,qué pasa con",
    persons="él ella ellos ellas le les su sus",
    things="eso esto ello ese esa aquello mismo lo",
    places="allí allá ahí",
    times="entonces",
    determiners="el la los las un una unos unas mi mis nuestro nuestra tu su sus este esta",
    at="en",
    towards="a de desde hacia",
    relations="""
        hermana hermano madre padre mamá papá esposa esposo mujer marido hijo hija primo prima tía
        tío abuela abuelo padres hijos amigo amiga amigos jefe jefa médico médica dentista profesor
        profesora colega vecino vecina
    """,
    dates="""
        enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
        lunes martes miércoles jueves viernes sábado domingo navidad
    """,
)
LANGUAGES = (ENGLISH, GERMAN, SPANISH, FRENCH)

# Words that carry no information about a text's topic.
FILLERS = words_of(
    """
    yes no yeah ok okay sure thanks thank please hello hi hey well really lot lots thing
    things something anything nothing everything know think tell told say said says mean
    remember recall want wanted need get got getting go going goes went gone come came make
    made let see look great good nice sorry maybe perhaps right actually still already yet
    ever never always often sometimes today yesterday tomorrow ask asked question answer
    help find found show according log memory noted like back put take took give gave happen
    happened talk talking anyone someone exactly interesting course oh ah anybody somebody
    everybody else ja nein danke bitte gerne heute gestern gut oui non merci bien sûr sí
    gracias vale bueno claro
    """
)
# Verbs that, if they are a question's only content, refer to the topic of earlier turns.
BARE_VERBS = words_of(
    """
    pay paid spend cost buy bought order ordered book booked choose decide recommend eat
    drink see meet use bring leave start end finish return arrive last happen
    """
)
# Verbs that may be followed by "that" and a statement.
SAYING = words_of("say says said tell told think thought know knew mean meant true hope hoped so")
BE = words_of("is are was were be been s")
# If "that" precedes one of these words, it refers to something earlier in the same question.
SUBJECTS = BE | {"i", "you", "he", "she", "it", "we", "they"}
# Words used with an impersonal "it": it rains, it takes an hour to, is it true that.
WEATHER = words_of("rain raining rained snow snowing snowed sunny cold warm hot dark")
IMPERSONAL = words_of("true possible ok okay hard easy safe important take takes")
# "This week" is the current week, but "that week" is one that was mentioned earlier.
SPANS = words_of(
    """
    day night morning afternoon evening week weekend month year time summer winter spring
    autumn trip
    """
)
CLAUSES = words_of(", ; and but when if because after before that while so since")
# Words, besides those with verb endings, that may follow a name at the start of a sentence.
VERBS = words_of(
    """
    is was has had will can does did and s met came went said told got made took gave bought ate
    saw ran left knew found brought sold won lost sent kept wrote spoke told fell broke drove flew
    """
)
# English words that can be dates but also have other meanings.
AMBIGUOUS_DATES = words_of("may march spring")
BEFORE_DATES = words_of("in of last next since until by this early late mid during")
