"""The addresses of sign-in: those of django-allauth that this server uses.

Nobody signs up here, and passwords are reset by staff who may change accounts, so that the pages
for these are left out.
"""

from allauth.account import views as account
from allauth.socialaccount import views as providers
from allauth.urls import build_provider_urlpatterns
from django.conf import settings
from django.urls import include, path

from uac_site.sign_in import views

log_in = account.LoginView.as_view(extra_context={"passwords": settings.UAC_PASSWORD_SIGN_IN})

urlpatterns = [
    path("login/", log_in, name="account_login"),
    path("account/logout/", account.logout, name="account_logout"),
    path("account/inactive/", account.account_inactive, name="account_inactive"),
    path("account/confirm/", account.reauthenticate, name="account_reauthenticate"),
    path("account/again/", views.sign_in_again, name="sign_in_again"),
    path("account/factors/", include("allauth.mfa.urls")),
    path("account/sessions/", include("allauth.usersessions.urls")),
    path("account/cancelled/", providers.login_cancelled, name="socialaccount_login_cancelled"),
    path("account/error/", providers.login_error, name="socialaccount_login_error"),
    path("account/saml/<slug:slug>/sls/", views.refuse_single_logout),
    path("account/", include(build_provider_urlpatterns())),
]
