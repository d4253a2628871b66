"""Exceptions of Google's clients and of the network become our CloudErrors here, at the edge of each call."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager

import google.auth.exceptions
import googleapiclient.errors
import httplib2
import requests
import urllib3
from google.api_core import exceptions as api_exceptions
from google.protobuf import json_format

from tpuctl.cloud.classify import NOBODY, Caller, from_http
from tpuctl.cloud.errors import CloudError, CredentialsError, TransientError


@contextmanager
def cloud_call(what: str, caller: Caller = NOBODY) -> Iterator[None]:
    """`what` names call and object for people. Raises only CloudError and its kinds for what the call can raise."""
    try:
        yield
    except api_exceptions.GoogleAPICallError as error:
        raise _of_api_error(error, what, caller) from error
    except googleapiclient.errors.HttpError as error:
        raise from_http(int(error.resp.status), error.content, what, caller) from error
    except google.auth.exceptions.TransportError as error:
        # The token could not be fetched: the call itself was never sent.
        raise TransientError(f"{what}: no token, the identity service cannot be reached: {error}") from error
    except google.auth.exceptions.GoogleAuthError as error:
        raise CredentialsError(
            f"{what}: no usable credentials: {error}. Log in: 'gcloud auth application-default login'."
        ) from error
    except (json_format.ParseError, googleapiclient.errors.Error, ValueError) as error:
        # ValueError: an answer that is not JSON. It came after the call, which may have had its effect.
        raise TransientError(f"{what}: the answer cannot be read: {error}", effect_unknown=True) from error
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise _of_network(error, what) from error
    except (httplib2.HttpLib2Error, http.client.HTTPException, OSError) as error:
        raise _of_network(error, what) from error


def _of_api_error(error: api_exceptions.GoogleAPICallError, what: str, caller: Caller) -> CloudError:
    response = error.response
    if isinstance(response, requests.Response):
        return from_http(response.status_code, response.content, what, caller)
    return from_http(int(error.code or 0), b"", what, caller)


# Nothing was sent: no connection came about.
_NEVER_SENT = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.NameResolutionError,
    urllib3.exceptions.ConnectTimeoutError,
    requests.ConnectTimeout,
    httplib2.ServerNotFoundError,
    ConnectionRefusedError,
)


def _of_network(error: Exception, what: str) -> TransientError:
    sent = not any(isinstance(cause, _NEVER_SENT) for cause in _causes(error))
    if isinstance(error, requests.Timeout | TimeoutError):
        said = "no answer in time"
    else:
        said = "the connection broke" if sent else "no connection"
    effect = " It may have taken effect." if sent else ""
    return TransientError(f"{what}: {said}: {error}.{effect}", effect_unknown=sent)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and what is wrapped in it: requests keeps urllib3's in `args`, urllib3 its own in `reason`."""
    queue: list[object] = [error]
    seen: set[int] = set()
    while queue:
        item = queue.pop()
        if not isinstance(item, BaseException) or id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        queue += [*item.args, getattr(item, "reason", None), item.__cause__, item.__context__]
