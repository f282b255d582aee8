"""Who finds messages to deliver: the relay by polling, the listener by change capture."""
