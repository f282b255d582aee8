"""Whether an ID token can be believed: signature, issuer, audience, times and nonce; mozilla-django-oidc checks two of these."""

from __future__ import annotations

import hmac
from typing import Any

import jwt

from config.openid import SignInRefused
from config.openid.provider import IdentityProvider

# Signed with a key that only the provider has: neither `none`, nor HMAC with a secret that we have as well.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LEEWAY = 10.0  # seconds by which clocks may differ
LONGEST_SUBJECT = 255  # of a `sub` (OpenID Connect Core, section 2)
WHY = {
    jwt.ExpiredSignatureError: "has expired (exp)",
    jwt.ImmatureSignatureError: "is of a time to come (iat)",
    jwt.InvalidIssuerError: "is by another issuer (iss)",
    jwt.InvalidAudienceError: "is for another client (aud)",
}


def verified(token: object, provider: IdentityProvider, nonce: str | None = None) -> dict[str, Any]:
    """The claims of an ID token. Raises SignInRefused, which says what is wrong, or ProviderUnavailable.

    The nonce is that of the log-in; None for a token that came with a refresh, which nobody can have put there.
    """
    claims = _signed_claims(token, provider)
    subject, authorized = claims["sub"], claims.get("azp")
    audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    if not isinstance(subject, str) or not 0 < len(subject) <= LONGEST_SUBJECT:
        raise SignInRefused("the ID token names nobody (sub)")
    if authorized != provider.client and (authorized is not None or len(audiences) > 1):
        raise SignInRefused("the ID token was made for another client (azp)")
    if nonce is not None and not (nonce and hmac.compare_digest(str(claims.get("nonce")).encode(), nonce.encode())):
        raise SignInRefused("the ID token belongs to another log-in (nonce)")
    return claims


def _signed_claims(token: object, provider: IdentityProvider) -> dict[str, Any]:
    try:
        header = jwt.get_unverified_header(token)  # type: ignore[arg-type]
    except jwt.PyJWTError:
        raise SignInRefused("the provider gave no ID token that can be read") from None
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise SignInRefused(f"the ID token is not signed by one of {', '.join(ALGORITHMS)} (alg)")
    for key in provider.keys(header.get("kid")):
        if key.get("alg", algorithm) != algorithm:
            continue
        try:
            return jwt.decode(
                token,  # type: ignore[arg-type]
                jwt.PyJWK(key, algorithm=algorithm),
                algorithms=[algorithm],
                audience=provider.client,
                issuer=provider.issuer,
                leeway=LEEWAY,
                options={"require": ["iss", "sub", "aud", "exp", "iat"]},
            )
        except (jwt.InvalidSignatureError, jwt.InvalidKeyError, jwt.PyJWKError):
            continue
        except jwt.MissingRequiredClaimError as error:
            raise SignInRefused(f"the ID token has no {error.claim}") from None
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            why = next((words for kind, words in WHY.items() if isinstance(error, kind)), "cannot be read")
            raise SignInRefused(f"the ID token {why}") from None
    raise SignInRefused("the ID token is signed with no key of the provider")
