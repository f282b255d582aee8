#!/usr/bin/env python3
"""Command line of Spillway: `python manage.py help` lists everything."""

from spillway_ext.command_line import main

if __name__ == "__main__":
    main()
