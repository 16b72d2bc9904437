from django.urls import path

from transfers import views

urlpatterns = [path("transfers", views.move)]
