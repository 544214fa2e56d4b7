"""The backend ``tiled``: the specification on blocks of query rows."""
