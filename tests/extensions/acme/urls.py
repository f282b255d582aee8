"""A page of its own, below /acme/."""

from django.http import HttpRequest, HttpResponse
from django.urls import path


def hello(request: HttpRequest) -> HttpResponse:
    return HttpResponse("parcels")


urlpatterns = [path("hello", hello)]
