"""Documents: everything dfopt saves to disk, as frozen models that load and dump strictly."""
