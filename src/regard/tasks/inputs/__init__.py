"""What tasks read: texts, images, sounds."""
