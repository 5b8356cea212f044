"""What runs in Celery workers."""
