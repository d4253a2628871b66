"""`google_metadata_script_runner startup|shutdown` of the guest agent: fetch the attribute and become the script.

The metadata server is asked again for a while: on a machine the network comes up while this starts. No attribute means
nothing to do. A script without a `#!` line is given to bash.
"""

from __future__ import annotations

import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NoReturn

RETRIES = 20


def fetch(attribute: str) -> str | None:
    """The attribute's text; None when it is not set. Raises OSError when the server does not answer."""
    host = os.environ["GCE_METADATA_HOST"]
    request = urllib.request.Request(
        f"http://{host}/computeMetadata/v1/instance/attributes/{attribute}", headers={"Metadata-Flavor": "Google"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for left in reversed(range(RETRIES)):
        try:
            with opener.open(request, timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise
        except OSError:
            if not left:
                raise
            time.sleep(0.25)
    return None


def main(_program: str, arguments: list[str]) -> int:
    if arguments not in (["startup"], ["shutdown"]):
        print("usage: google_metadata_script_runner startup|shutdown", file=sys.stderr)
        return 2
    kind = arguments[0]
    text = fetch(f"{kind}-script")
    if text is None:
        print(f"No {kind} script to run.")
        return 0
    return become(kind, text)


def become(kind: str, text: str) -> NoReturn:
    path = Path(os.environ["TMPDIR"], f"metadata-{kind}-script")
    path.write_text(text, encoding="utf-8")
    path.chmod(0o700)
    print(f"{kind}-script: begin", flush=True)
    first = text.partition("\n")[0]
    argv = [*first[2:].split(), str(path)] if first.startswith("#!") else ["/bin/bash", str(path)]
    os.execvp(argv[0], argv)
