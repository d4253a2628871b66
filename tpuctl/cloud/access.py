"""Credentials for an endpoint. A token never travels over plain HTTP: such an endpoint gets none."""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import urlsplit

import google.auth
import google.auth.credentials
import google_auth_httplib2
import httplib2

from tpuctl.base.errors import UserError

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


def scheme_and_host(endpoint: str) -> tuple[str, str]:
    """(`https`, `tpu.googleapis.com`). Raises UserError when the endpoint is not a root."""
    try:
        parts = urlsplit(endpoint)
        is_root = bool(parts.hostname) and parts.port != 0 and not parts.path.strip("/") and not parts.query
    except ValueError:  # a port beyond 65535, half an IPv6 address
        is_root = False
    if not is_root or parts.scheme not in ("http", "https"):
        raise UserError(
            f"endpoint {endpoint!r}: give a root such as https://tpu.googleapis.com or http://127.0.0.1:8080"
        )
    return parts.scheme, parts.netloc


def credentials_for(endpoint: str) -> google.auth.credentials.Credentials:
    """Anonymous for http; else this machine's default ones. Raises google.auth.exceptions.DefaultCredentialsError."""
    if scheme_and_host(endpoint)[0] == "http":
        return google.auth.credentials.AnonymousCredentials()
    return _default_credentials()


def account_of(credentials: google.auth.credentials.Credentials) -> str:
    """The account's address as far as the credentials tell without a call; "" if they do not. A machine's own are
    `default` until their first refresh."""
    for name in ("service_account_email", "signer_email", "account"):
        value = getattr(credentials, name, None)
        if isinstance(value, str) and "@" in value:
            return value
    return ""


@cache
def _default_credentials() -> google.auth.credentials.Credentials:
    # One object a process: three services share one token and one refresh.
    credentials, _ = google.auth.default(scopes=SCOPES)
    return credentials


def http_for(endpoint: str, timeout_s: float) -> Any:
    """A fresh httplib2-like object: they are not thread-safe, so each call makes its own."""
    if scheme_and_host(endpoint)[0] == "http":
        # No proxy of the environment stands between us and an endpoint on this machine.
        return httplib2.Http(timeout=timeout_s, proxy_info=None)
    return google_auth_httplib2.AuthorizedHttp(credentials_for(endpoint), http=httplib2.Http(timeout=timeout_s))
