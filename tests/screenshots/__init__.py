"""Pictures of the admin: rows of a bad morning, every page by name, and a camera. `make screenshots` takes them."""
