"""HTTP proxies that the environment names."""

import pytest
from yarl import URL

from arkdev.endpoints.endpoint import ModelRequest
from arkdev.endpoints.http_proxy import find_http_proxy
from arkdev.endpoints.remote import RemoteEndpoint
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import ConfigurationError
from tests.unit.endpoints.chat_server import ChatServer, completion


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "inside.example"])
def test_loopback_and_excluded_hosts_go_directly(monkeypatch, host):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    assert find_http_proxy(URL(f"http://{host}:8000/v1")).url is None


def test_credentials_of_a_proxy_go_to_the_proxy_alone(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://u:p@proxy:3128")
    proxy = find_http_proxy(URL("https://host/v1"))
    assert proxy.url == URL("http://proxy:3128")
    assert proxy.connect_headers == {"Proxy-Authorization": "Basic dTpw"}
    assert proxy.request_headers == {}


def test_a_socks_proxy_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy:1080")
    with pytest.raises(ConfigurationError, match="socks5"):
        find_http_proxy(URL("https://host/v1"))


async def test_a_request_goes_through_the_proxy(monkeypatch):
    async with ChatServer().running() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
        endpoint = RemoteEndpoint(
            EndpointSpec(
                name="far",
                base_url="http://far.invalid/v1",
                model="m",
                api_key_env=None,
                family="generic",
                source="command line",
            ),
            api_key=None,
            max_in_flight=1,
            timeout_s=60,
        )
        await endpoint.check_reachable()  # that the proxy is there is all that can be known
        answer = await endpoint.complete(ModelRequest(body={"messages": []}))
        await endpoint.close()
    assert answer == completion()
    assert proxy.requests[0][0]["Host"] == "far.invalid"
