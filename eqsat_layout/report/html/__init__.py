"""Pictures of programs: what is drawn, where it goes, and the page that shows it.

As ``report``.
"""
