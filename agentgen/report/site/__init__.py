"""The leaderboard as a static site."""
