"""An identity provider of an organisation, as staff sign in at: OpenID Connect and SAML.

It answers over HTTP as a real one does. Who is at the browser, and in which groups, the test says.
"""

import base64
import json
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID


@dataclass
class Person:
    """Somebody at the browser, and when the provider last asked them who they are."""

    name: str
    groups: list[str] = field(default_factory=list)
    proved_at: Any = field(default_factory=time.time)
    email: str = ""


class IdentityProvider:
    """A provider with one signing key, for both protocols."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.person = Person("nobody")
        self.authorisations: list[dict[str, str]] = []
        self.url = ""

    # -- OpenID Connect ----------------------------------------------------------------------------

    def authorise(self, address: str) -> str:
        """Answer a redirect to the authorization endpoint; return the callback's URL with a code.

        As the protocol has it, `prompt=login` makes the person prove who they are.
        """
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        self.authorisations.append(query)
        if query.get("prompt") == "login":
            self.person.proved_at = time.time()
        return f"{query['redirect_uri']}?code=c&state={query['state']}"

    def answer(self, path: str) -> dict[str, Any]:
        """Return the JSON of an endpoint."""
        person: dict[str, Any] = {
            "sub": f"sub-{self.person.name}",
            "preferred_username": self.person.name,
        }
        if self.person.email:
            person |= {"email": self.person.email, "email_verified": True}
        match path:
            case "/.well-known/openid-configuration":
                return {
                    "issuer": self.url,
                    "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.url}/token",
                    "userinfo_endpoint": f"{self.url}/userinfo",
                    "jwks_uri": f"{self.url}/keys",
                    "token_endpoint_auth_methods_supported": ["client_secret_post"],
                }
            case "/token":
                now = int(time.time())
                claims = person | {"iss": self.url, "aud": "uac", "iat": now, "exp": now + 60}
                proved_at = self.person.proved_at
                is_moment = isinstance(proved_at, float)
                claims["auth_time"] = int(proved_at) if is_moment else proved_at
                token = jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": "1"})
                return {"access_token": "t", "token_type": "Bearer", "id_token": token}
            case "/userinfo":
                return person | {"groups": self.person.groups}
        raise AssertionError(path)

    # -- SAML --------------------------------------------------------------------------------------

    def certificate(self) -> str:
        """Return the certificate of the signing key, in base64."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "idp")])
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(name, name, self.key.public_key(), 1)
        builder = builder.not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
        der = builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
        return base64.b64encode(der).decode()

    def metadata(self) -> str:
        """Return the metadata that the server reads."""
        return f"""<EntityDescriptor xmlns="urn:oasis:names:tc:SAML:2.0:metadata"
            xmlns:ds="http://www.w3.org/2000/09/xmldsig#" entityID="{self.url}/saml">
          <IDPSSODescriptor protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol">
            <KeyDescriptor use="signing"><ds:KeyInfo><ds:X509Data><ds:X509Certificate>
              {self.certificate()}</ds:X509Certificate></ds:X509Data></ds:KeyInfo></KeyDescriptor>
            <SingleSignOnService Location="{self.url}/sso"
              Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect"/>
          </IDPSSODescriptor></EntityDescriptor>"""

    def respond(self, address: str) -> tuple[str, dict[str, str]]:
        """Answer a redirect with an AuthnRequest: where to post which form."""
        from onelogin.saml2.utils import OneLogin_Saml2_Utils

        query = parse_qs(urlsplit(address).query)
        request = ElementTree.fromstring(
            zlib.decompress(base64.b64decode(query["SAMLRequest"][0]), -15)
        )
        self.authorisations.append(dict(request.attrib))
        if request.attrib.get("ForceAuthn") == "true":
            self.person.proved_at = time.time()
        target = request.attrib["AssertionConsumerServiceURL"]
        issuer = request.findtext("{urn:oasis:names:tc:SAML:2.0:assertion}Issuer")
        now = datetime.now(UTC)
        proved_at = datetime.fromtimestamp(self.person.proved_at, UTC).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        )
        [before, at, after] = [
            (now + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
            for minutes in (-1, 0, 5)
        ]
        groups = "".join(
            f"<saml:AttributeValue>{group}</saml:AttributeValue>" for group in self.person.groups
        )
        assertion = f"""<saml:Assertion xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion"
            ID="_a{time.time_ns()}" Version="2.0" IssueInstant="{at}">
          <saml:Issuer>{self.url}/saml</saml:Issuer>
          <saml:Subject><saml:NameID>{self.person.name}</saml:NameID>
            <saml:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:bearer">
              <saml:SubjectConfirmationData NotOnOrAfter="{after}" Recipient="{target}"
                InResponseTo="{request.attrib["ID"]}"/></saml:SubjectConfirmation></saml:Subject>
          <saml:Conditions NotBefore="{before}" NotOnOrAfter="{after}"><saml:AudienceRestriction>
            <saml:Audience>{issuer}</saml:Audience></saml:AudienceRestriction></saml:Conditions>
          <saml:AuthnStatement AuthnInstant="{proved_at}"><saml:AuthnContext>
            <saml:AuthnContextClassRef>
            urn:oasis:names:tc:SAML:2.0:ac:classes:Password</saml:AuthnContextClassRef>
            </saml:AuthnContext></saml:AuthnStatement>
          <saml:AttributeStatement><saml:Attribute Name="groups">{groups}</saml:Attribute>
            </saml:AttributeStatement></saml:Assertion>"""
        pem = self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()
        certificate = OneLogin_Saml2_Utils.format_cert(self.certificate())
        signed = OneLogin_Saml2_Utils.add_sign(assertion, pem, certificate)
        text = signed.decode() if isinstance(signed, bytes) else signed
        response = f"""<samlp:Response xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol"
            ID="_r{time.time_ns()}" Version="2.0" IssueInstant="{at}" Destination="{target}"
            InResponseTo="{request.attrib["ID"]}">
          <saml:Issuer xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion"
            >{self.url}/saml</saml:Issuer>
          <samlp:Status><samlp:StatusCode
            Value="urn:oasis:names:tc:SAML:2.0:status:Success"/></samlp:Status>{text}
          </samlp:Response>"""
        return target, {"SAMLResponse": base64.b64encode(response.encode()).decode()}


@contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    """Run a provider on a port of its own."""
    provider = IdentityProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            is_saml = path == "/metadata"
            text = provider.metadata() if is_saml else json.dumps(provider.answer(path))
            self.send_response(200)
            self.send_header("Content-Type", "text/xml" if is_saml else "application/json")
            self.end_headers()
            self.wfile.write(text.encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *args: Any) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
