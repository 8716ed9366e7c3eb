"""What a report is drawn with: curves, panels of the page, and figures as files."""
