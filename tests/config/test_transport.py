"""What browsers are told about https."""

from django.conf import settings


def test_nobody_is_put_on_the_browsers_list_without_asking():
    assert settings.SECURE_SSL_REDIRECT
    assert settings.SECURE_HSTS_SECONDS
    assert not settings.SECURE_HSTS_PRELOAD
