"""Settings of the web process: Django itself, its pages, logins, and what browsers are told."""

from __future__ import annotations

import secrets
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from config.environment.databases import databases
from config.environment.env import Env, roles_from_text

CODE = Path(__file__).resolve().parent.parent.parent
IS_CHECKOUT = (CODE / "manage.py").exists()
# Where the user is: beside manage.py in a checkout, else in the directory that is named, or in which a command is called.
env = Env()
BASE_DIR = CODE if IS_CHECKOUT else Path(env.text("SPILLWAY_DIR") or Path.cwd())
env = Env(BASE_DIR / ".env")
TEMPLATES_DIR = CODE / "templates" if IS_CHECKOUT else CODE / "config" / "templates"
# What a process keeps unless a setting names another place. Where nothing can be written, the settings do.
with suppress(OSError):
    (BASE_DIR / "var").mkdir(exist_ok=True)

# -- Django ---------------------------------------------------------------------------------------
DEBUG = env.flag("DEBUG", False)
DEMO = env.flag("DEMO", False)
SECRET_KEY = env.text("SECRET_KEY") or secrets.token_urlsafe(50)
SECRET_KEY_IS_RANDOM = not env.text("SECRET_KEY")
ALLOWED_HOSTS = env.listing("ALLOWED_HOSTS", ["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.listing("CSRF_TRUSTED_ORIGINS")
ENVIRONMENT_NAME = env.text("ENVIRONMENT_NAME", "demo" if DEMO else "")

# -- Who lets people in (docs/sign-in.md) ----------------------------------------------------------
OIDC_ISSUER = env.address("OIDC_ISSUER", what="an issuer, such as https://id.example.com")
OIDC_CLIENT_ID = env.text("OIDC_CLIENT_ID")
OIDC_CLIENT_SECRET = env.text("OIDC_CLIENT_SECRET")
OIDC_ROLES = roles_from_text(env.text("OIDC_ROLES", "ops-support=Support; ops-operators=Operator"))
OIDC_GROUPS_CLAIM = env.text("OIDC_GROUPS_CLAIM", "groups")
OIDC_SCOPES = env.text("OIDC_SCOPES", "openid profile")
OIDC_RECHECK_SECONDS = env.integer("OIDC_RECHECK_SECONDS", 900, least=1, most=900)
OIDC_CAFILE = env.text("OIDC_CAFILE")
PASSWORD_LOGIN = env.flag("PASSWORD_LOGIN", True)
BREAK_GLASS_ACCOUNT = env.text("BREAK_GLASS_ACCOUNT", "break-glass")

# -- Apps, pages, databases -----------------------------------------------------------------------
INSTALLED_APPS = [
    "config",
    "outbox",
    "buffer",
    "throttler",
    "notifications",
    "axes",
    "django_prometheus",
    "config.apps.SpillwayAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "config.middleware.Correlation",
    "config.middleware.ReadToTheEnd",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "config.middleware.ContentSecurityPolicy",
    "config.middleware.RequestLog",
    "outbox.api.problems.ProblemDetails",
    "config.middleware.BodyLength",
    "config.middleware.Sessions",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    *(["outbox.sign_in.recheck.Recheck"] if OIDC_ISSUER else []),
    "outbox.accounts.zones.InViewersZone",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [TEMPLATES_DIR],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "config.middleware.environment",
            ]
        },
    }
]
DATABASE_IDLE_TRANSACTION_SECONDS = env.integer("DATABASE_IDLE_TRANSACTION_SECONDS", 10, most=600)
DATABASES = databases(env.text("DATABASE_URL"), env.text("REPLICA_URL"), BASE_DIR, DATABASE_IDLE_TRANSACTION_SECONDS)
DATABASE_ROUTERS = ["config.replica.Router"] if len(DATABASES) > 1 else []
REPLICA_MAX_LAG_SECONDS = env.integer("REPLICA_MAX_LAG_SECONDS", 10, least=1, most=600)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_RULES: dict[str, dict] = {
    "MinimumLength": {"min_length": 12},
    "CommonPassword": {},
    "UserAttributeSimilarity": {},
}
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{rule}Validator", "OPTIONS": options}
    for rule, options in ({} if DEMO else PASSWORD_RULES).items()
]

LANGUAGE_CODE = "en"
USE_I18N = False
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STATICFILES_DIRS = [TEMPLATES_DIR / "static"]
WHITENOISE_USE_FINDERS = True

# -- Logins ---------------------------------------------------------------------------------------
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    *(["outbox.sign_in.backends.OpenIDBackend"] if OIDC_ISSUER else []),
    # Another one where passwords are off: sessions name theirs, so those that a password began end.
    "django.contrib.auth.backends.ModelBackend" if PASSWORD_LOGIN else "outbox.sign_in.passwords.BreakGlassBackend",
]
LOGIN_REDIRECT_URL = "admin:index"  # also where `next` names another site
SESSION_COOKIE_AGE = 12 * 3600
SESSION_SAVE_EVERY_REQUEST = True  # the 12 hours begin anew with each request
LOGIN_MOST_FAILURES = AXES_FAILURE_LIMIT = env.integer("LOGIN_MOST_FAILURES", 10, least=1, most=100)
LOGIN_LOCK_MINUTES = env.integer("LOGIN_LOCK_MINUTES", 15, least=1, most=1440)
LOGIN_RETENTION_DAYS = env.integer("LOGIN_RETENTION_DAYS", 90, least=1)
AXES_COOLOFF_TIME = timedelta(minutes=LOGIN_LOCK_MINUTES)
# One address that guesses for many names, and many addresses that guess for one.
AXES_LOCKOUT_PARAMETERS = "config.middleware.lockout_parameters"
AXES_CLIENT_IP_CALLABLE = "config.middleware.client_address"
AXES_LOCKOUT_TEMPLATE = "locked_out.html"
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False  # who is locked out writes no more rows
AXES_ENABLE_ACCESS_FAILURE_LOG = True
AXES_ACCESS_FAILURE_LOG_PER_USER_LIMIT = 10**9  # the daily round deletes by age; axes would delete the newest
AXES_SENSITIVE_PARAMETERS = ["username", "ip_address", "code", "state"]  # the last two are of a log-in at a provider
AXES_VERBOSE = AXES_ENABLE_ADMIN = False  # our pages: config.admin.logins

SECURE_SSL_REDIRECT = env.flag("SECURE_SSL_REDIRECT", not DEBUG and not DEMO)
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]  # probes speak plain HTTP
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT
SECURE_HSTS_SECONDS = env.integer("SECURE_HSTS_SECONDS", 31536000 if SECURE_SSL_REDIRECT else 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_SSL_REDIRECT
SECURE_HSTS_PRELOAD = env.flag("SECURE_HSTS_PRELOAD", False)
SILENCED_SYSTEM_CHECKS = ["security.W021"]  # browsers keep a preloaded host for years: only whoever means it
TRUST_PROXY = env.flag("TRUST_PROXY", False)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if TRUST_PROXY else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
