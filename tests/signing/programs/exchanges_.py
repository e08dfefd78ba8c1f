"""The exchanges' own clients, and ccxt where there is none: a request that reads and one that writes."""

import os

import ccxt
import krakenex
from bfxapi import Client
from binance.spot import Spot
from pybit.unified_trading import HTTP

from common import refused, run, same


def parts(scheme, spoil, *names):
    found = {name: os.environ[f"{scheme}_{name.upper()}"] for name in names}
    # In the middle, so that base64 stays what it is.
    found["secret"] = found["secret"][:9] + ("a" if spoil and found["secret"][9] != "a" else "b" if spoil else found["secret"][9]) + found["secret"][10:]
    return [found[name] for name in names]


def by_ccxt(name, host, id, secret, passphrase=None):
    client = getattr(ccxt, name)({"apiKey": id, "secret": secret, "password": passphrase, "requests_trust_env": True, "enableRateLimit": False})
    replace = lambda urls: {key: replace(value) if isinstance(value, dict) else host + value[len("https://") + value[len("https://"):].find("/"):] if value.count("/") > 2 else host for key, value in urls.items()}
    client.urls["api"] = replace(client.urls["api"])
    return client


def binance(spoil=False):
    id, secret = parts("BINANCE", spoil, "key", "secret")
    spot = Spot(api_key=id, api_secret=secret, base_url="https://binance.test")
    same("/api/v3/account?" in spot.account()["Seen"]["target"], True)
    spot.new_order(symbol="LTCBTC", side="BUY", type="LIMIT", timeInForce="GTC", quantity=1, price=0.1)
    # The connector has all in the query; this one has it in a form.
    order = {"symbol": "LTCBTC", "side": "BUY", "type": "MARKET", "quantity": "1"}
    same("symbol=LTCBTC" in by_ccxt("binance", "https://binance.test", id, secret).privatePostOrder(order)["Seen"]["content"], True)


def kraken(spoil=False):
    api = krakenex.API(*parts("KRAKEN", spoil, "key", "secret"))
    api.uri = "https://kraken.test"
    same(api.query_private("Balance")["result"]["target"], "/0/private/Balance")
    same("volume=1.25" in api.query_private("AddOrder", {"pair": "XBTUSD", "volume": "1.25", "ordertype": "limit"})["result"]["content"], True)


def coinbase(spoil=False):
    client = by_ccxt("coinbaseexchange", "https://coinbase.test", *parts("COINBASE", spoil, "key", "secret", "passphrase"))
    same(client.privateGetFills({"product_id": "BTC-USD"})[0]["target"], "/fills?product_id=BTC-USD")
    same(client.privatePostOrders({"size": "0.1", "side": "buy"})[0]["method"], "POST")


def bybit(spoil=False):
    id, secret = parts("BYBIT", spoil, "key", "secret")
    session = HTTP(api_key=id, api_secret=secret, max_retries=1)
    # It takes its host from a list of its own, and its CA from the program alone.
    session.endpoint, session.client.verify = "https://bybit.test", os.environ["SSL_CERT_FILE"]
    same("coin=BTC" in session.get_wallet_balance(accountType="UNIFIED", coin="BTC")["result"]["target"], True)
    same(session.place_order(category="spot", symbol="BTCUSDT", side="Buy", orderType="Market", qty="1")["result"]["method"], "POST")


def okx(spoil=False):
    client = by_ccxt("okx", "https://okx.test", *parts("OKX", spoil, "key", "secret", "passphrase"))
    same("ccy=BTC" in client.privateGetAccountBalance({"ccy": "BTC,ETH"})["data"][0]["target"], True)
    same(client.privatePostTradeOrder({"instId": "BTC-USDT", "sz": "1"})["data"][0]["method"], "POST")


def bitfinex(spoil=False):
    id, secret = parts("BITFINEX", spoil, "key", "secret")
    rest = Client(api_key=id, api_secret=secret, rest_host="https://bitfinex.test/v2").rest
    same(rest.auth.get_wallets(), [])
    same(rest.auth.get_orders(symbol="tBTCUSD"), [])


ALL = {"binance": binance, "kraken": kraken, "coinbase": coinbase, "bybit": bybit, "okx": okx, "bitfinex": bitfinex}
run(ALL | {"wrong signature": lambda: refused(*ALL.values())})
