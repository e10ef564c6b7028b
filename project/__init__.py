"""The Django project of this repository: it hosts the app `pubsub` for development, tests and the demo."""
