//! Which addresses may be called. A URL comes from a configuration, but where its name leads, somebody else decides:
//! only public addresses are called, and those networks that the configuration allows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

/// What IANA's registry of special-purpose IPv4 addresses does not call globally reachable, and multicast.
const NOT_PUBLIC_V4: [Ipv4Net; 15] = [
    v4(0, 0, 0, 0, 8),
    v4(10, 0, 0, 0, 8),
    v4(100, 64, 0, 0, 10),
    v4(127, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    v4(172, 16, 0, 0, 12),
    v4(192, 0, 0, 0, 24),
    v4(192, 0, 2, 0, 24),
    v4(192, 88, 99, 0, 24),
    v4(192, 168, 0, 0, 16),
    v4(198, 18, 0, 0, 15),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
];

/// Only what IANA has given out as global unicast is public, …
const GLOBAL_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// … but for its special parts: protocol assignments (Teredo among them) and documentation.
const NOT_PUBLIC_V6: [Ipv6Net; 3] = [
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    Ipv6Net::new_assert(Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// The IPv4 address that an IPv6 address stands for: mapped, NAT64, or 6to4. A packet to it ends there.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(v4(high, low))
        }
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

/// Whether the address can be reached from everywhere, so that calling it tells nothing of where we are.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !NOT_PUBLIC_V4.iter().any(|net| net.contains(&address)),
        IpAddr::V6(address) => match embedded(address) {
            Some(inner) => is_public(inner.into()),
            None => {
                GLOBAL_V6.contains(&address)
                    && !NOT_PUBLIC_V6.iter().any(|net| net.contains(&address))
            }
        },
    }
}

/// Which addresses may be called.
#[derive(Clone)]
pub(crate) struct Guard(Arc<[IpNet]>);

impl Guard {
    /// Public addresses, and those of these networks.
    pub fn new(allowed: &[IpNet]) -> Self {
        Self(allowed.into())
    }

    pub fn lets_pass(&self, address: IpAddr) -> bool {
        // `::ffff:10.0.0.1` is as good as `10.0.0.1`, in a list of networks too.
        let address = address.to_canonical();
        is_public(address) || self.0.iter().any(|net| net.contains(&address))
    }
}

/// Resolves names to addresses that may be called; the connection is made to one of exactly those, so that no second
/// look-up can lead elsewhere.
impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed: Vec<SocketAddr> =
                found.iter().copied().filter(|address| guard.lets_pass(address.ip())).collect();
            match found.first() {
                Some(address) if allowed.is_empty() => Err(refusal(address.ip()).into()),
                _ => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

/// Why an address is not called.
pub(crate) fn refusal(address: IpAddr) -> String {
    format!("{address} is not public: list its network in http.allow_networks if it may be called")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(guard: &Guard, address: &str) -> bool {
        guard.lets_pass(address.parse().unwrap_or_else(|_| panic!("{address}")))
    }

    #[test]
    fn only_public_addresses_are_called() {
        let guard = Guard::new(&[]);
        for address in [
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2002:101:101::1",
            "64:ff9b::101:101",
        ] {
            assert!(pass(&guard, address), "{address}");
        }
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.1.1",
            "198.18.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:a00:1::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!pass(&guard, address), "{address}");
        }
    }

    #[test]
    fn allowed_networks_are_called_too_and_nothing_beside_them() {
        let nets = ["10.1.0.0/16", "::1/128"].map(|net| net.parse().expect("a network"));
        let guard = Guard::new(&nets);
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "::1", "1.1.1.1"] {
            assert!(pass(&guard, address), "{address}");
        }
        for address in ["10.2.0.1", "127.0.0.1", "::2"] {
            assert!(!pass(&guard, address), "{address}");
        }
    }
}
