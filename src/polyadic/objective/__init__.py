"""What is minimised: losses, penalties, the prior of the weight tensor, and all of it together."""
