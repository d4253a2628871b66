from __future__ import annotations

import pytest

from tpuctl.base.web import NoAnswerError, call
from tpuctl.testing.web import Reply, ScriptedServer


def test_any_status_is_an_answer() -> None:
    with ScriptedServer(lambda _: Reply({"error": "x"}, status=503, headers={"X-More": "y"})) as server:
        answer = call("GET", server.url, timeout_s=5)

    assert (answer.status, answer.document(), answer.headers["x-more"]) == (503, {"error": "x"}, "y")


def test_a_redirect_is_not_followed_so_the_token_stays_here() -> None:
    with ScriptedServer(lambda _: Reply()) as elsewhere:
        to = elsewhere.url
        with ScriptedServer(lambda _: Reply(status=302, headers={"Location": to})) as server:
            answer = call("GET", server.url, token="secret", timeout_s=5)

        assert answer.status == 302
        assert elsewhere.asked == []


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(lambda _: Reply("proxy")) as proxy, ScriptedServer(lambda _: Reply("real")) as server:
        monkeypatch.setenv("http_proxy", proxy.url)

        assert call("GET", server.url, timeout_s=5).text() == "real"
        assert proxy.asked == []


def test_no_answer_says_where_and_holds_no_token() -> None:
    with ScriptedServer(lambda _: Reply()) as server:
        url = server.url

    with pytest.raises(NoAnswerError, match=url) as caught:
        call("PUT", url, token="secret", document={"a": 1}, timeout_s=5)

    assert "secret" not in str(caught.value)
