"""What tests stand on: a site of their own, a packet capture, a box to attempt things in, and what must not be left."""
