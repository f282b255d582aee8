"""What the foreign project keeps."""

from django.db import models


class Invoice(models.Model):
    number = models.IntegerField(unique=True)
    reminded = models.BooleanField(default=False)

    def __str__(self):
        return f"invoice {self.number}"
