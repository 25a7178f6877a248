"""Coins by what people call them, and what the price service calls them."""

from collections.abc import Mapping

from msgspec import Struct

__all__ = ["COINS", "Coin", "coin_of"]


class Coin(Struct, frozen=True):
    """One coin."""

    symbol: str
    name: str
    id: str
    """As CoinGecko knows it."""
    others: tuple[str, ...] = ()
    """Further names, in lower case."""


COINS = (
    Coin("BTC", "Bitcoin", "bitcoin", ("xbt",)),
    Coin("ETH", "Ethereum", "ethereum", ("ether",)),
    Coin("USDT", "Tether", "tether", ("tether usd",)),
    Coin("BNB", "BNB", "binancecoin", ("binance coin", "build and build")),
    Coin("SOL", "Solana", "solana"),
    Coin("USDC", "USD Coin", "usd-coin", ("usdcoin",)),
    Coin("XRP", "XRP", "ripple", ("xrp ledger",)),
    Coin("DOGE", "Dogecoin", "dogecoin"),
    Coin("ADA", "Cardano", "cardano"),
    Coin("TRX", "TRON", "tron"),
    Coin("AVAX", "Avalanche", "avalanche-2"),
    Coin("SHIB", "Shiba Inu", "shiba-inu", ("shiba",)),
    Coin("DOT", "Polkadot", "polkadot"),
    Coin("LINK", "Chainlink", "chainlink"),
    Coin("BCH", "Bitcoin Cash", "bitcoin-cash"),
    Coin("NEAR", "NEAR Protocol", "near"),
    Coin("LTC", "Litecoin", "litecoin"),
    Coin("UNI", "Uniswap", "uniswap"),
    Coin("POL", "Polygon", "polygon-ecosystem-token", ("matic", "polygon ecosystem token")),
    Coin("ICP", "Internet Computer", "internet-computer"),
    Coin("DAI", "Dai", "dai"),
    Coin("APT", "Aptos", "aptos"),
    Coin("XLM", "Stellar", "stellar", ("stellar lumens",)),
    Coin("ETC", "Ethereum Classic", "ethereum-classic"),
    Coin("XMR", "Monero", "monero"),
    Coin("FIL", "Filecoin", "filecoin"),
    Coin("ATOM", "Cosmos", "cosmos", ("cosmos hub",)),
    Coin("HBAR", "Hedera", "hedera-hashgraph"),
    Coin("SUI", "Sui", "sui"),
    Coin("TON", "Toncoin", "the-open-network", ("the open network",)),
)

_KNOWN = {
    spoken: coin
    for coin in COINS
    for spoken in (coin.symbol.lower(), coin.name.lower(), coin.id, coin.id.replace("-", " "), *coin.others)
}


def coin_of(spoken: str, further: Mapping[str, str]) -> Coin | None:
    """The coin of a symbol, a name or an id, in any case; None: it is not known. `further`: ids by symbol or name."""
    word = " ".join(spoken.strip().lstrip("$").lower().split())
    for name, id_ in further.items():
        if name.strip().lower() == word:
            return Coin(name.strip(), name.strip(), id_)
    return _KNOWN.get(word)
