"""The least a Django project needs for this recipe."""

import os

SECRET_KEY = "of this recipe only"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "transfers.urls"
INSTALLED_APPS = ["transfers"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["BANK_DB"]}}
USE_TZ = True
