"""The HTTP API. Importing this package loads no route: its tokens are models, which every worker loads."""
