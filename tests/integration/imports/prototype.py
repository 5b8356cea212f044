"""An invented project in the form of the paper's prototype, with four critical alerts.

Its constraints load the state by themselves, beneath packages that they make up.
"""

_LOAD = """
import importlib.util
import sys
import types
from pathlib import Path


def load(project, domain):
    packages = {"domains": project / "domains", f"domains.{domain}": project / "domains" / domain}
    for name, folder in packages.items():
        if name not in sys.modules:
            package = types.ModuleType(name)
            package.__path__ = [str(folder)]
            package.__package__ = name
            sys.modules[name] = package
    for part in ("schema", "state"):
        name = f"domains.{domain}.{part}"
        path = project / "domains" / domain / f"{part}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        module.__package__ = f"domains.{domain}"
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return module
"""

PROTOTYPE = {
    "manifest.py": """
DOMAINS = {"papers": {"path": "domains/papers", "summary": "A permit, two journeys"}}
ACTIVE_ALERTS: list[dict] = []
""",
    "domains/__init__.py": "",
    "domains/papers/__init__.py": "from .schema import Permit\nfrom .state import permit\n",
    "domains/papers/schema.py": '''
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from typing import Optional


class Purpose(Enum):
    WORK = "work"
    REST = "rest"


@dataclass
class Permit:
    """A residence permit."""
    number: str
    expires: date

    def __str__(self) -> str:
        return self.number


@dataclass
class Leg:
    to: str
    hours: float = 0.0
    seat: Optional[str] = None


@dataclass
class Journey:
    name: str
    back_on: date
    is_abroad: bool
    purpose: Purpose
    legs: list[Leg] = field(default_factory=list)
    notes: str = ""
''',
    "domains/papers/state.py": """
from datetime import date
from .schema import Journey, Leg, Permit, Purpose

permit = Permit(number="P-7", expires=date(2026, 4, 1))

journeys = [
    Journey("Lisbon", date(2026, 4, 9), True, Purpose.WORK, [Leg("Porto", 3.5), Leg("Lisbon")]),
    Journey("Oslo", date(2026, 5, 2), is_abroad=True, purpose=Purpose.REST, notes="by train"),
    Journey("Bonn", date(2026, 6, 1), False, Purpose.REST),
]
""",
    "domains/health/__init__.py": "",
    "domains/health/schema.py": """
from dataclasses import dataclass, field


@dataclass
class Drug:
    name: str
    family: str = ""


@dataclass
class Profile:
    allergic_to: list[str] = field(default_factory=list)
    drugs: list[Drug] = field(default_factory=list)
""",
    "domains/health/state.py": """
from .schema import Drug, Profile

profile = Profile(["nuts", "sulfa"], [Drug("Bactrim", family="sulfa"), Drug("Aspirin")])
""",
    "domains/money/__init__.py": "",
    "domains/money/schema.py": """
from dataclasses import dataclass
from typing import Optional


@dataclass
class Payment:
    amount: float
    recipient: str
    account: str
    reason: Optional[str] = None
""",
    "domains/money/state.py": """
from .schema import Payment

payments = [Payment(900.0, "Landlord", "1111", "rent"), Payment(900.0, "Landlord", "2222", "rent")]
""",
    "constraints/__init__.py": "",
    "constraints/journeys.py": _LOAD
    + """

def check(project_path: str) -> list[dict]:
    state = load(Path(project_path), "papers")
    return [
        {
            "severity": "critical",
            "source": "journeys",
            "domain": "papers",
            "message": f"{state.permit.number} expires before the return from {journey.name}",
        }
        for journey in state.journeys
        if journey.is_abroad and state.permit.expires < journey.back_on
    ]
""",
    "constraints/drugs.py": _LOAD
    + """

def check(project_path: str) -> list[dict]:
    profile = load(Path(project_path), "health").profile
    return [
        {"severity": "critical", "source": "drugs", "domain": "health", "message": drug.name}
        for drug in profile.drugs
        if drug.family in profile.allergic_to
    ]
""",
    "constraints/payments.py": _LOAD
    + """

def check(project_path: str) -> list[dict]:
    accounts = {}
    for payment in load(Path(project_path), "money").payments:
        accounts.setdefault((payment.recipient, payment.reason), set()).add(payment.account)
    return [
        {"severity": "critical", "source": "payments", "domain": "money", "message": recipient}
        for (recipient, _), numbers in accounts.items()
        if len(numbers) > 1
    ]
""",
    "tests/test_payments.py": """
from pathlib import Path

from constraints.payments import check


def test_two_accounts_of_one_recipient():
    assert len(check(str(Path(__file__).parents[1]))) == 1
""",
}

# Runs every constraint as the prototype's runner does, each with modules of its own.
RUN = """
import importlib.util, json, sys
from pathlib import Path

alerts = []
for path in sorted(Path("constraints").glob("*.py")):
    for name in [name for name in sys.modules if name.startswith("domains")]:
        del sys.modules[name]
    if path.name != "__init__.py":
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        alerts += module.check(str(Path.cwd()))
print(json.dumps(alerts))
"""
