"""Passports and visas must be valid for as long as the country of a planned trip requires.

Raises an alert for each planned trip for which none of the traveller's passports is valid long
enough. A passport must be valid for as many months after entry or departure as COUNTRIES requires
or, for a country that is not in that table, until the end of the trip; in the latter case, the
message says that the rule is unknown. Also raises an alert if every visa for the country begins
after the trip does, ends before the trip does, or allows no further entry. An alert is critical if
the problem is certain, and a warning if the problem is only possible, because only the month or
year of a date is known. The alert stays live through the day on which the trip starts.

Needs trips with a country and a start, and passports with a day of expiry, which may be empty. The
end of the trip, the traveller and visas are used if they are recorded.

Does not consider the traveller's citizenship, which may require more or less (check COUNTRIES
against the rules for your users before you enable the constraint), whether a visa is needed if none
is recorded, transit countries unless they are recorded as trips, or how old the passport is. Two
consecutive trips count as two entries, unless one starts on the day on which the other ends.
"""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uac import Alert, PartialDate, Record, critical, warning

ALSO = {
    "Trip": ("Journey", "Travel", "Flight", "PlannedTrip", "Itinerary", "TravelPlan"),
    "Trip.country": ("destination_country", "destination", "to", "country_code"),
    "Trip.start": ("starts_on", "start_date", "departs_on", "departure_date", "entry_date", "on"),
    "Trip.end": ("ends_on", "end_date", "returns_on", "return_date", "exit_date"),
    "Trip.traveller": ("traveler", "passenger", "person"),
    "Trip.cancelled": ("canceled", "is_cancelled"),
    "Passport": ("TravelDocument", "IdentityDocument", "Document"),
    "Passport.expires_on": (
        "expiry_date",
        "expiration_date",
        "expires",
        "expiry",
        "expiration",
        "valid_until",
        "valid_to",
    ),
    "Passport.kind": ("type", "document_type"),
    "Passport.holder": ("owner", "name_on_document", "person", "full_name"),
    "Passport.number": ("document_number", "passport_number"),
    "Visa": ("TravelVisa", "EntryPermit"),
    "Visa.country": ("area", "issued_for", "issuing_country", "destination", "country_code"),
    "Visa.valid_from": ("starts_on", "start_date", "issued_on"),
    "Visa.valid_until": ("expires_on", "expiry_date", "expiration_date", "valid_to", "end_date"),
    "Visa.entries": ("number_of_entries", "max_entries", "entries_allowed"),
    "Visa.holder": ("owner", "person", "traveller", "traveler"),
}

SCHENGEN = (
    *("austria", "belgium", "bulgaria", "croatia", "czechia", "czech republic", "denmark"),
    *("estonia", "finland", "france", "germany", "greece", "hungary", "iceland", "italy"),
    *("latvia", "liechtenstein", "lithuania", "luxembourg", "malta", "netherlands", "norway"),
    *("poland", "portugal", "romania", "slovakia", "slovenia", "spain", "sweden", "switzerland"),
    *("schengen", "schengen area"),
    *("at", "be", "bg", "hr", "cz", "dk", "ee", "fi", "fr", "de", "gr", "hu", "is", "it", "lv"),
    *("li", "lt", "lu", "mt", "nl", "no", "pl", "pt", "ro", "sk", "si", "es", "se", "ch"),
)
# How many months after entry or departure a passport must be valid, according to the countries' own
# websites and those of foreign ministries in 2025. For a country missing from this table, the
# passport must be valid until the end of the trip, and the alert says so.
ENTRY = "after entry"
DEPARTURE = "after departure"
# According to each country's immigration authority, a passport must be valid for six months from
# the day of entry.
SIX_MONTHS = (
    *("china", "india", "indonesia", "malaysia", "philippines", "singapore", "thailand"),
    *("vietnam", "viet nam", "united arab emirates", "uae", "saudi arabia", "egypt", "kenya"),
    *("tanzania", "cn", "in", "id", "my", "ph", "sg", "th", "vn", "ae", "sa", "eg", "ke", "tz"),
)
# A passport must be valid for the length of the stay.
STAY = (
    *("australia", "canada", "ireland", "japan", "mexico", "united kingdom", "great britain"),
    *("au", "ca", "ie", "jp", "mx", "uk", "gb"),
)
COUNTRIES = (
    # Regulation (EU) 2016/399 (Schengen Borders Code), article 6(1)(a): three months after the
    # intended date of departure, for travellers who are not EU citizens.
    (SCHENGEN, 3, DEPARTURE),
    (SIX_MONTHS, 6, ENTRY),
    # Immigration New Zealand: three months after the intended day of departure.
    (("new zealand", "nz"), 3, DEPARTURE),
    # South Africa: thirty days beyond the end of the visit; treated as one month here.
    (("south africa", "za"), 1, DEPARTURE),
    (STAY, 0, DEPARTURE),
)


@dataclass(kw_only=True)
class Trip(Record):
    """A planned stay in one country."""

    country: str
    start: datetime.date | PartialDate
    end: datetime.date | PartialDate | None = None
    traveller: str | None = None
    cancelled: bool = False


@dataclass(kw_only=True)
class Passport(Record):
    """A passport. A document is considered only if its kind contains the word "passport"."""

    expires_on: datetime.date | PartialDate | None
    kind: str = "passport"
    holder: str | None = None
    number: str | None = None


@dataclass(kw_only=True)
class Visa(Record):
    """Permission to enter a country, or the Schengen area."""

    country: str
    valid_until: datetime.date | PartialDate
    valid_from: datetime.date | PartialDate | None = None
    entries: int | None = None
    holder: str | None = None


def check(
    today: datetime.date,
    trips: Sequence[Trip],
    passports: Sequence[Passport],
    visas: Sequence[Visa] = (),
) -> Iterator[Alert]:
    """Passports and visas must be valid for as long as the country of a planned trip requires."""
    made = sorted(
        (trip for trip in trips if not trip.cancelled),
        key=lambda trip: (first(trip.start), trip.key),
    )
    for trip in made:
        if last(trip.start) >= today:
            yield from check_passports(trip, passports)
            yield from check_visas(trip, visas, made)


def check_passports(trip: Trip, passports: Sequence[Passport]) -> Iterator[Alert]:
    """Yield an alert if none of the traveller's passports is valid long enough for a trip."""
    own = [
        (passport.expires_on, passport)
        for passport in passports
        if passport.expires_on is not None
        and "passport" in (plain(passport.kind) or "passport")
        and may_be_one(passport.holder, trip.traveller)
    ]
    if not own:
        return
    expires_on, passport = max(own, key=lambda one: (first(one[0]), last(one[0]), one[1].key))
    rule = rule_of(trip.country)
    months, counted = rule or (0, DEPARTURE)
    begin = trip.start if counted == ENTRY else trip.end or trip.start
    if first(expires_on) >= months_after(last(begin), months):
        return
    certain = last(expires_on) < months_after(first(begin), months)
    text = f"The passport{numbered(passport)} expires {on(expires_on)}"
    if rule is None:
        requirement = f"the trip to {trip.country} ends {on(begin)} (entry rule unknown)"
    elif months:
        unit = "month" if months == 1 else "months"
        requirement = f"{trip.country} requires validity for {months} {unit} {counted} {on(begin)}"
    else:
        requirement = f"{trip.country} requires validity until departure {on(begin)}"
    raised = critical if certain else warning
    yield raised(
        f"{text}, {'but' if certain else 'which may be too early:'} {requirement}",
        evidence=[trip, passport],
    )


def rule_of(country: str) -> tuple[int, str] | None:
    """Return for how many months after which event a passport must be valid; None if unknown."""
    name = plain(country)
    return next(((months, counted) for names, months, counted in COUNTRIES if name in names), None)


def check_visas(trip: Trip, visas: Sequence[Visa], trips: Sequence[Trip]) -> Iterator[Alert]:
    """Yield an alert if there are visas for a trip's country, but none of them allows the trip."""
    own = [
        visa
        for visa in sorted(visas, key=lambda visa: visa.key)
        if is_for(visa, trip) and may_be_one(visa.holder, trip.traveller)
    ]
    problems = [(visa, *problem(visa, trip, trips)) for visa in own]
    if problems and all(text for _, text, _ in problems):
        # Report the visa that expires last.
        visa, text, certain = max(problems, key=lambda one: (last(one[0].valid_until), one[0].key))
        raised = critical if certain else warning
        yield raised(f"The visa for {visa.country} {text}", evidence=[trip, visa])


def problem(visa: Visa, trip: Trip, trips: Sequence[Trip]) -> tuple[str, bool]:
    """Return a visa's problem with a trip ("" if there is none), and whether it is certain."""
    end = trip.end or trip.start
    begins = visa.valid_from
    if begins is not None and first(trip.start) < last(begins):
        text = f"is valid from {begins}, but the trip to {trip.country} starts {on(trip.start)}"
        return text, trip.start < begins
    if last(end) > first(visa.valid_until):
        text = f"is valid until {visa.valid_until}, but the trip to {trip.country} ends {on(end)}"
        return text, end > visa.valid_until
    earlier = [
        other
        for other in trips
        if other.key != trip.key
        and is_for(visa, other)
        and may_be_one(visa.holder, other.traveller)
        and last(other.end or other.start) < first(trip.start)
        and (begins is None or last(other.start) >= first(begins))
    ]
    if visa.entries is not None and len(earlier) >= visa.entries:
        used = ", ".join(f"{other.country} {on(other.start)}" for other in earlier)
        text = (
            f"allows {visa.entries} {'entry' if visa.entries == 1 else 'entries'}, used for"
            f" {used}: none is left for the trip to {trip.country} {on(trip.start)}"
        )
        return text, True
    return "", False


def is_for(visa: Visa, trip: Trip) -> bool:
    """Return whether the visa is for the trip's country."""
    area, country = plain(visa.country), plain(trip.country)
    return area == country or (area in SCHENGEN and country in SCHENGEN)


def may_be_one(holder: str | None, traveller: str | None) -> bool:
    """Return whether two names may be the same person's: either is unknown, or the names match."""
    return not holder or not traveller or plain(holder) == plain(traveller)


def months_after(day: datetime.date, months: int) -> datetime.date:
    """The same day `months` months later, or that month's last day if it has no such day."""
    years, month = divmod(day.month - 1 + months, 12)
    year = day.year + years
    return datetime.date(year, month + 1, min(day.day, calendar_days(year, month + 1)))


def calendar_days(year: int, month: int) -> int:
    """Return the number of days in the month."""
    return PartialDate(f"{year:04}-{month:02}").latest.day


def first(day: datetime.date | PartialDate) -> datetime.date:
    """The first day of a date, which may be a whole month or year."""
    return day.earliest if isinstance(day, PartialDate) else day


def last(day: datetime.date | PartialDate) -> datetime.date:
    """The last day of a date, which may be a whole month or year."""
    return day.latest if isinstance(day, PartialDate) else day


def on(day: datetime.date | PartialDate) -> str:
    """The date with its preposition: "on 2026-05-01", "in 2026-05"."""
    return f"on {day}" if first(day) == last(day) else f"in {day}"


def numbered(passport: Passport) -> str:
    """The passport with its number and holder, if known."""
    number = f" {passport.number}" if passport.number else ""
    return number + (f" issued to {passport.holder}" if passport.holder else "")


def plain(text: str) -> str:
    """The text, normalised for comparison."""
    return " ".join(text.casefold().split())
