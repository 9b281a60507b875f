"""Sharding and fusion decided together: bounds that hold for every sharding, and the search that closes them."""
