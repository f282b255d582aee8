"""A page."""

from acme.models import DepotNote
from django.contrib import admin

from spillway_ext import ReadOnlyAdmin


@admin.register(DepotNote)
class DepotNoteAdmin(ReadOnlyAdmin):
    list_display = ["depot", "text"]
