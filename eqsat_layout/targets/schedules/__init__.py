"""What schedules of several targets share: how blocks read and write, rewritten arithmetic, attempts."""
