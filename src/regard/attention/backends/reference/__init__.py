"""The backend ``reference``: the specification on the whole grid."""
