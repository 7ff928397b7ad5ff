"""The end-to-end suite: real servers behind the gateway, compared with the same servers reached directly."""
