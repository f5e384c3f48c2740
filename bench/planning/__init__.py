"""Plans and the time that they take: rewrites left, costs beside other planners, seconds by stage."""
