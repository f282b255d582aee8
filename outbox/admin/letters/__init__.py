"""What the page of a dead letter shows beside the letter itself."""
