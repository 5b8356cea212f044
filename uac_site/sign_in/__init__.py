"""How staff sign in: passwords, second factors, and the identity provider of their organisation.

The pages and protocols are django-allauth's. Here is what it asks a site: who may enter, which
roles an identity provider's groups give, how often a password may be tried, how long a session
lasts.
"""
