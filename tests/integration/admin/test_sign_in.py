"""Sign-in of staff: identity providers, second factors, proofs before grave acts, sessions."""

import base64
import re
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from allauth.mfa.adapter import get_adapter
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth as totp
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from cryptography.fernet import Fernet
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.http import QueryDict
from django.test import Client
from django.urls import NoReverseMatch, reverse
from pytest_django.fixtures import Settings

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import ApiKey, Scope, Workspace
from memory.kernel.staff import recent_sign_in
from memory.kernel.staff.models import AuditKind, StaffAccess, StaffAudit
from memory.kernel.workspaces import create_key
from memory.privacy.models import UserErasure
from tests.identity_provider import IdentityProvider, Person, identity_provider
from tests.integration.admin.conftest import list_url
from uac_site.sign_in import configuration

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery staple"
FORM = "application/x-www-form-urlencoded"
OIDC = "/admin/account/oidc/oidc/login/"
SAML = "/admin/account/saml/saml/login/"


@pytest.fixture
def staff() -> User:
    return User.objects.create_superuser(f"staff-{uuid.uuid4().hex[:8]}", password=PASSWORD)


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as provider:
        yield provider


@pytest.fixture
def oidc(provider: IdentityProvider, settings: Settings) -> IdentityProvider:
    """The settings with an OpenID Connect provider whose group `ops` are operators."""
    environment = {
        "UAC_OIDC_ISSUER": provider.url,
        "UAC_OIDC_CLIENT_ID": "uac",
        "UAC_OIDC_CLIENT_SECRET": "secret",
        "UAC_OIDC_SCOPES": ["openid", "groups"],
        "UAC_SIGN_IN_NAME": "Acme",
    }
    settings.SOCIALACCOUNT_PROVIDERS = configuration.providers(lambda name: environment.get(name))
    settings.UAC_SIGN_IN_ROLES = ["ops=operator", "privacy = privacy officer"]
    return provider


def log_in(user: User, **headers: Any) -> Client:
    """Log in by password, as the form does."""
    client = Client(**headers)
    form = {"login": user.username, "password": PASSWORD}
    response = client.post("/admin/login/?next=/admin/", form)
    assert response.status_code == 302, response.content
    return client


def sign_in(
    client: Client, provider: IdentityProvider, url: str = "/admin/account/oidc/oidc/login/"
) -> Any:
    """Follow a sign-in at the OpenID Connect provider to its end."""
    redirect = client.get(url)
    assert redirect["Location"].startswith(f"{provider.url}/authorize?")
    return client.get(provider.authorise(redirect["Location"]))


def age(client: Client, seconds: float) -> None:
    """Move the session's proofs into the past."""
    session = client.session
    session[recent_sign_in.PROVED] = time.time() - seconds
    session.save()


# -- Identity providers ------------------------------------------------------------------------


def test_person_of_a_mapped_group_signs_in_with_its_role(oidc: IdentityProvider) -> None:
    oidc.person = Person("ada.ops", ["ops", "other"])
    client = Client()

    assert b"Acme" in client.get("/admin/login/").content
    assert sign_in(client, oidc)["Location"] == "/admin/"

    user = User.objects.get(username="ada.ops")
    assert (user.is_staff, user.is_superuser, user.has_usable_password()) == (True, False, False)
    assert [group.name for group in user.groups.all()] == ["operator"]
    assert client.get("/admin/").status_code == 200
    assert StaffAudit.objects.get(staff_name="ada.ops", kind=AuditKind.LOGIN).what == "oidc"
    assert oidc.authorisations[-1]["code_challenge_method"] == "S256"


def test_roles_follow_the_groups_at_each_sign_in(oidc: IdentityProvider) -> None:
    oidc.person = Person("bob", ["ops"])
    sign_in(Client(), oidc)
    user = User.objects.get(username="bob")
    user.groups.add(Group.objects.create(name="no role"))
    oidc.person = Person("bob", ["privacy"])
    sign_in(Client(), oidc)

    assert {group.name for group in user.groups.all()} == {"privacy officer", "no role"}


def test_person_of_no_mapped_group_is_refused(oidc: IdentityProvider) -> None:
    oidc.person = Person("eve", ["marketing"])
    client = Client()

    assert sign_in(client, oidc).status_code == 403
    assert not User.objects.filter(username="eve").exists()
    assert client.get("/admin/")["Location"].startswith("/admin/login/")


def test_person_who_left_all_groups_is_refused(oidc: IdentityProvider) -> None:
    oidc.person = Person("carl", ["ops"])
    sign_in(Client(), oidc)
    oidc.person = Person("carl", [])

    assert sign_in(Client(), oidc).status_code == 403


def test_provider_cannot_take_over_a_local_account(oidc: IdentityProvider, staff: User) -> None:
    oidc.person = Person(staff.username, ["ops"])
    client = Client()
    sign_in(client, oidc)

    assert int(client.session["_auth_user_id"]) != staff.pk


def test_identity_is_not_connected_with_an_account_that_exists(
    oidc: IdentityProvider, staff: User
) -> None:
    oidc.person = Person("mallory", ["ops"])
    client = log_in(staff)

    assert sign_in(client, oidc, f"{OIDC}?process=connect").status_code == 401
    assert not SocialAccount.objects.exists()


def test_whoever_left_does_not_get_in_by_another_way(
    oidc: IdentityProvider, settings: Settings
) -> None:
    oidc.person = Person("gus", ["ops"])
    sign_in(Client(), oidc)
    user = User.objects.get(username="gus")
    user.set_password(PASSWORD)
    user.save()
    client = Client()

    refused = client.post("/admin/login/", {"login": "gus", "password": PASSWORD})

    assert refused.status_code == 403
    assert client.get("/admin/")["Location"].startswith("/admin/login/")
    oidc.person = Person("gus", [])
    sign_in(Client(), oidc)
    assert not user.groups.exists()


@pytest.mark.parametrize("moment", [None, "soon", True, [1]])
def test_odd_moment_of_proof_does_not_count(oidc: IdentityProvider, moment: Any) -> None:
    oidc.person = Person("hal", ["ops"], proved_at=moment)
    client = Client()

    assert sign_in(client, oidc)["Location"] == "/admin/"
    assert client.session[recent_sign_in.PROVED] == 0


def test_person_with_a_verified_address_can_prove_who_they_are(
    oidc: IdentityProvider, user: MemoryUser
) -> None:
    oidc.person = Person("jo", ["privacy"], proved_at=0, email="jo@example.org")
    client = Client()
    sign_in(client, oidc)
    StaffAccess.objects.create(user=User.objects.get(username="jo"), all_workspaces=True)

    assert erasure(client, user)["Location"].startswith("/admin/account/again/?next=")


def test_disabled_account_stays_out(oidc: IdentityProvider) -> None:
    oidc.person = Person("dora", ["ops"])
    sign_in(Client(), oidc)
    User.objects.filter(username="dora").update(is_active=False)
    client = Client()
    sign_in(client, oidc)

    assert client.get("/admin/")["Location"].startswith("/admin/login/")


def test_sign_in_counts_from_the_moment_of_the_provider_s_proof(
    oidc: IdentityProvider, user: MemoryUser
) -> None:
    oidc.person = Person("fay", ["privacy"], proved_at=time.time() - 3600)
    client = Client()
    sign_in(client, oidc)
    StaffAccess.objects.create(user=User.objects.get(username="fay"), all_workspaces=True)
    erasing = erasure(client, user)

    assert erasing["Location"].startswith("/admin/account/again/?next=")
    assert not UserErasure.objects.exists()

    # The provider asks the person again, since this server wants it.
    back = sign_in(client, oidc, erasing["Location"])
    assert oidc.authorisations[-1]["prompt"] == "login"
    assert back["Location"] == "/admin/not-done/"
    send_again(client)
    assert UserErasure.objects.exists()


@pytest.fixture
def saml(provider: IdentityProvider, settings: Settings) -> IdentityProvider:
    """The settings with a SAML provider whose group `ops` are operators."""
    environment = {
        "UAC_SAML_METADATA_URL": f"{provider.url}/metadata",
        "UAC_SAML_ENTITY_ID": f"{provider.url}/saml",
        "UAC_SIGN_IN_NAME": "Acme",
    }
    settings.SOCIALACCOUNT_PROVIDERS = configuration.providers(lambda name: environment.get(name))
    settings.UAC_SIGN_IN_ROLES = ["ops=operator", "privacy=privacy officer"]
    return provider


def sign_in_by_saml(client: Client, provider: IdentityProvider, url: str = SAML) -> Any:
    """Follow a sign-in at the SAML provider to its end."""
    redirect = client.get(url)
    assert redirect["Location"].startswith(f"{provider.url}/sso?"), redirect["Location"]
    return post_assertion(client, *provider.respond(redirect["Location"]))


def post_assertion(client: Client, target: str, form: dict[str, str]) -> Any:
    """Post the provider's form, as a browser does at its page."""
    posted = client.post(target.removeprefix("http://testserver"), form)
    return client.get(posted["Location"])


def test_person_signs_in_by_saml(saml: IdentityProvider) -> None:
    saml.person = Person("ida", ["ops"])
    client = Client(HTTP_HOST="testserver")

    assert sign_in_by_saml(client, saml)["Location"] == "/admin/"

    [account] = SocialAccount.objects.filter(uid="ida")
    assert [group.name for group in account.user.groups.all()] == ["operator"]
    assert client.get("/admin/").status_code == 200


@pytest.mark.parametrize("change", ["another person", "no signature", "another request"])
def test_forged_assertion_is_refused(saml: IdentityProvider, change: str) -> None:
    saml.person = Person("ivan", ["ops"])
    client = Client(HTTP_HOST="testserver")
    target, form = saml.respond(client.get(SAML)["Location"])
    text = base64.b64decode(form["SAMLResponse"]).decode()
    if change == "another person":
        text = text.replace("ivan", "root")
    elif change == "no signature":
        text = re.sub("<ds:Signature.*</ds:Signature>", "", text, flags=re.DOTALL)
    else:
        client = Client(HTTP_HOST="testserver")  # which has asked for nothing
    post_assertion(client, target, {"SAMLResponse": base64.b64encode(text.encode()).decode()})

    assert client.get("/admin/")["Location"].startswith("/admin/login/")
    assert not SocialAccount.objects.filter(uid__in=["ivan", "root"]).exists()


def test_saml_proves_who_somebody_is_only_where_it_was_asked(
    saml: IdentityProvider, user: MemoryUser
) -> None:
    saml.person = Person("ines", ["privacy"], proved_at=time.time() - 3600)
    client = Client(HTTP_HOST="testserver")
    sign_in_by_saml(client, saml)
    ines = SocialAccount.objects.get(uid="ines").user
    StaffAccess.objects.create(user=ines, all_workspaces=True)
    asked = erasure(client, user)
    assert asked["Location"].startswith("/admin/account/again/?next=")

    sign_in_by_saml(client, saml, asked["Location"])
    assert saml.authorisations[-1]["ForceAuthn"] == "true"
    send_again(client)

    assert UserErasure.objects.exists()


# -- Proofs ------------------------------------------------------------------------------------


def erasure(client: Client, user: MemoryUser) -> Any:
    """Erase a person from the list of users."""
    told = {"confirmed": "1", "note": "asked for by mail", "typed": user.user_id}
    data = {"action": "erase", "_selected_action": [user.pk], **told}
    return client.post(list_url(MemoryUser), data)


def send_again(client: Client) -> None:
    """Press the button of the page that shows what was not done."""
    page = client.get("/admin/not-done/")
    form = QueryDict(mutable=True)
    for name, value in page.context["fields"]:
        form.appendlist(name, value)
    client.post(page.context["path"], form.urlencode(), FORM)


def test_erasure_goes_on_once_the_password_was_given_again(staff: User, user: MemoryUser) -> None:
    client = log_in(staff)
    age(client, 301)
    asked = erasure(client, user)
    assert asked["Location"].startswith("/admin/account/confirm/?next=")
    assert not UserErasure.objects.exists()
    assert client.post(asked["Location"], {"password": "wrong"}).status_code == 200
    assert not UserErasure.objects.exists()

    client.post(asked["Location"], {"password": PASSWORD})
    send_again(client)

    assert UserErasure.objects.get().by == f"staff:{staff.username}"
    assert not MemoryUser.objects.filter(pk=user.pk).exists()


def test_recent_sign_in_is_proof_enough(staff: User, user: MemoryUser) -> None:
    client = log_in(staff)
    age(client, 290)
    erasure(client, user)

    assert UserErasure.objects.exists()


@pytest.mark.parametrize("page", ["subject_access", "account", "password", "role"])
def test_grave_page_asks_for_the_proof(staff: User, user: MemoryUser, page: str) -> None:
    address = {
        "subject_access": reverse("admin:memory_memoryuser_subject_access", args=[user.pk]),
        "account": reverse("admin:auth_user_change", args=[staff.pk]),
        "password": reverse("admin:auth_user_password_change", args=[staff.pk]),
        "role": reverse("admin:auth_group_add"),
    }[page]
    client = log_in(staff)
    if page != "subject_access":  # whose archive is read in a transaction of its own
        assert client.get(address).status_code == 200
    age(client, 301)

    responses = [client.get(address)]
    if page != "subject_access":  # which is no form
        responses.append(client.post(address, {"password1": "secret"}))
    for response in responses:
        assert response["Location"].startswith("/admin/account/confirm/?next=")
    assert "secret" not in str(dict(client.session))


def test_other_person_does_not_see_what_was_not_done(staff: User, user: MemoryUser) -> None:
    client = log_in(staff)
    age(client, 301)
    erasure(client, user)
    client.post("/admin/logout/")
    other = User.objects.create_superuser("other", password=PASSWORD)
    client.post("/admin/login/", {"login": other.username, "password": PASSWORD})

    assert client.get("/admin/not-done/")["Location"] == "/admin/"
    assert not UserErasure.objects.exists()


def test_accounts_are_not_deleted_in_a_session_left_open(staff: User) -> None:
    victim = User.objects.create_user("victim")
    client = log_in(staff)
    age(client, 301)

    client.post(reverse("admin:auth_user_delete", args=[victim.pk]), {"post": "yes"})
    selected = {"action": "delete_selected", "_selected_action": [victim.pk], "post": "yes"}
    client.post(reverse("admin:auth_user_changelist"), selected)
    client.post(reverse("admin:password_change"), {"old_password": PASSWORD})

    assert User.objects.filter(pk=victim.pk).exists()


def test_key_that_manages_is_not_replaced_in_a_session_left_open(
    staff: User, workspace: Workspace
) -> None:
    key, _ = create_key(workspace, "manager", [Scope.MANAGE])
    client = log_in(staff)
    age(client, 301)
    form = {"action": "replace", "_selected_action": [key.pk], "confirmed": "1"}
    client.post(reverse("admin:memory_apikey_changelist"), form)

    assert ApiKey.objects.filter(workspace=workspace).count() == 1


def test_admin_has_no_pages_of_the_tables_of_sign_in() -> None:
    assert {model._meta.app_label for model in admin.site._registry} == {"auth", "memory"}


# -- Second factors ----------------------------------------------------------------------------


def code(user: User) -> str:
    """Return the code that the person's authenticator app shows now."""
    row = Authenticator.objects.get(user=user, type=Authenticator.Type.TOTP)
    return code_of(get_adapter().decrypt(row.data["secret"]))


def code_of(secret: str) -> str:
    counter = next(totp.yield_hotp_counters_from_time())
    return str(totp.format_hotp_value(totp.hotp_value(secret, counter)))


def add_app(client: Client, user: User) -> None:
    """Add an authenticator app, as its page does."""
    page = reverse("mfa_activate_totp")
    client.get(page)
    secret = client.session["mfa.totp.secret"]
    added = client.post(page, {"code": code_of(secret)})
    assert added.status_code == 302, added.content


def test_second_factor_is_asked_for_and_its_secret_is_encrypted(
    staff: User, settings: Settings, stopped: None
) -> None:
    settings.UAC_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    add_app(log_in(staff), staff)
    row = Authenticator.objects.get(user=staff, type=Authenticator.Type.TOTP)
    assert row.data["secret"].startswith("gAAAA")
    client = Client()
    first = client.post("/admin/login/", {"login": staff.username, "password": PASSWORD})
    assert first["Location"].startswith("/admin/account/factors/authenticate/")
    assert client.get("/admin/")["Location"].startswith("/admin/login/")
    assert client.post(first["Location"], {"code": "000000"}).status_code == 200

    cache.clear()  # where allauth remembers used codes, in each process
    client.post(first["Location"], {"code": code(staff)})

    assert client.get("/admin/").status_code == 200
    cache.clear()
    again = Client()
    again.post("/admin/login/", {"login": staff.username, "password": PASSWORD})
    used = again.post(first["Location"], {"code": code(staff)})
    assert used.context["form"].errors.as_data()["code"][0].code == "used"
    newest = StaffAudit.objects.filter(staff_name=staff.username)[:1].get()
    assert newest.what == "password + totp"


def test_password_alone_only_leads_to_adding_a_factor(staff: User, settings: Settings) -> None:
    settings.UAC_SECOND_FACTOR = True
    client = log_in(staff)
    assert client.get("/admin/")["Location"] == reverse("mfa_index")

    add_app(client, staff)

    assert client.get("/admin/").status_code == 200


def test_pages_of_sign_in_have_the_rail_once_a_person_may_enter(
    staff: User, settings: Settings
) -> None:
    for is_needed in (True, False):
        settings.UAC_SECOND_FACTOR = is_needed
        page = log_in(staff).get(reverse("mfa_index")).content
        assert (b'id="rail"' in page) is not is_needed
        assert b'id="logout-form"' in page
    assert b'id="rail"' not in Client().get("/admin/login/").content


def test_factor_is_not_added_in_a_session_left_open(staff: User) -> None:
    client = log_in(staff)
    age(client, 301)

    for name in ("mfa_activate_totp", "mfa_add_webauthn"):
        assert client.get(reverse(name))["Location"].startswith("/admin/account/confirm/")


def test_passwords_can_be_turned_off(staff: User, settings: Settings) -> None:
    settings.UAC_PASSWORD_SIGN_IN = False
    client = Client()
    client.post("/admin/login/", {"login": staff.username, "password": PASSWORD})

    assert client.get("/admin/")["Location"].startswith("/admin/login/")


# -- Sessions ----------------------------------------------------------------------------------


def test_idle_session_expires_and_a_used_one_is_extended(staff: User, settings: Settings) -> None:
    client = log_in(staff)
    before = client.session.get_expiry_date()
    assert client.session.get_expiry_age() == settings.SESSION_COOKIE_AGE
    with time_machine.travel(time.time() + 120):
        client.get("/admin/")
        row = Session.objects.get(session_key=client.session.session_key)
        assert row.expire_date > before
        assert UserSession.objects.get(user=staff).last_seen_at > before - timedelta(
            seconds=settings.SESSION_COOKIE_AGE
        )


def test_session_ends_at_its_limit_although_it_is_used(staff: User, settings: Settings) -> None:
    client = log_in(staff)
    session = client.session
    session["began_at"] -= settings.UAC_SESSION_HOURS * 3600 + 1
    session.save()

    assert client.get("/admin/")["Location"].startswith("/admin/login/")


def test_other_sessions_are_listed_and_ended(staff: User) -> None:
    other = log_in(staff, HTTP_USER_AGENT="another browser")
    client = log_in(staff)
    page = client.get(reverse("usersessions_list"))
    assert b"another browser" in page.content

    client.post(reverse("usersessions_list"))

    assert other.get("/admin/")["Location"].startswith("/admin/login/")
    assert client.get("/admin/").status_code == 200


def test_nobody_signs_up_or_resets_a_password_here() -> None:
    for path in ("signup", "password/reset", "email", "account/signup", "account/3rdparty"):
        assert Client().get(f"/admin/{path}/").status_code in (302, 404)
    for name in ("account_signup", "account_reset_password", "account_email"):
        with pytest.raises(NoReverseMatch):
            reverse(name)
