"""A Django project that is not Spillway, and has packages called `config` and `notifications`."""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    execute_from_command_line(sys.argv)
