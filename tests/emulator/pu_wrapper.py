"""tpunicorn2's `pu` as installed, with another API root and a dummy token: `pu_wrapper.py URL ARGUMENT...`."""

import sys

from google.oauth2.credentials import Credentials
from tpunicorn import api, cli  # type: ignore[import-untyped]  # it ships no types

api.API_ROOT = f"{sys.argv[1]}/v2"
api._default_credentials = lambda: Credentials(token="dummy")
cli.main(args=sys.argv[2:])
