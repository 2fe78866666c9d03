"""What each command does: turn arguments into a plan, hand it on, show what came of it."""
