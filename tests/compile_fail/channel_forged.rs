//! Only `origin` opens a channel, and a channel cannot be pointed elsewhere.

use gateway::origin::Channel;

pub fn forged(one: Channel, remote: std::net::SocketAddr) -> Channel {
    Channel { remote, ..one }
}
