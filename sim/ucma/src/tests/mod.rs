//! The connection manager against a made-up card.

mod addresses;
mod bed;
mod datagram;
mod hostile;
mod iwarp;
mod life;
mod reliable;
