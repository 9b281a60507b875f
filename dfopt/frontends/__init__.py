"""Other people's files turned into our documents."""
