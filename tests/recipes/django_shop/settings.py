"""The least a Django project needs for this recipe."""

SECRET_KEY = "of this recipe only"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "orders.urls"
INSTALLED_APPS = ["orders"]
DATABASES: dict[str, dict[str, str]] = {}
USE_TZ = True
