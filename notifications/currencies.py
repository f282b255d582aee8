"""The currencies of ISO 4217 that people are charged in, and how an amount is written."""

from __future__ import annotations

ACTIVE = """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF
    CHF CLF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD
    HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL
    LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR
    PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP
    TRY TTD TWD TZS UAH UGX USD UYI UYU UYW UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG
"""
CODES = frozenset(ACTIVE.split())
# Those whose minor unit is not a hundredth.
EXPONENTS = {
    **dict.fromkeys(["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"], 3),
    **dict.fromkeys(
        ["BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV",
         "XAF", "XOF", "XPF"], 0,
    ),
    **dict.fromkeys(["CLF", "UYW"], 4),
}  # fmt: skip


def money(minor: int, currency: str) -> str:
    """`1,234.50 EUR`, `1,235 JPY`, `1.250 KWD`: never through a float."""
    exponent = EXPONENTS.get(currency, 2)
    whole, rest = divmod(abs(minor), 10**exponent)
    sign = "-" if minor < 0 else ""
    return f"{sign}{whole:,}{f'.{rest:0{exponent}d}' if exponent else ''} {currency}"
