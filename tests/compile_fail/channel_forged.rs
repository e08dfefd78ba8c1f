//! A channel is opened by the origin room alone, and cannot be pointed elsewhere.

use gateway::origin::Channel;

pub fn forged(one: Channel, remote: std::net::SocketAddr) -> Channel {
    Channel { remote, ..one }
}
