//! How a detector is reached: what processes tell each other over the fabric, and the addresses at
//! which it is tried.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use super::wire::{Connection, Key};
use crate::error::{Error, Result};
use crate::transport::fabric::{BlockLayout, Fabric, NativeCollective, ProcessBlocks};

/// How long it may take to reach a process at one of its addresses.
const REACH: Duration = Duration::from_secs(3);
/// Addresses that a process tells of itself.
const ADDRESSES: usize = 8;

/// Where a process listens, and the secret.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Invitation {
    pub(super) key: Key,
    port: u64,
    addresses: [[u8; 16]; ADDRESSES],
}

impl Invitation {
    /// To a new listener at this port.
    pub(super) fn new(port: u16) -> Invitation {
        let mut own =
            Invitation { key: [secret(), secret()], port: port.into(), ..Self::default() };
        own.addresses.iter_mut().zip(addresses()).for_each(|(to, it)| *to = it.octets());
        own
    }
}

/// What process 0 tells all, which call it together.
pub(super) fn invite(fabric: &Arc<dyn Fabric>, mut own: Invitation) -> Result<Invitation> {
    let (memory, bytes) = ((&raw mut own).cast(), size_of::<Invitation>());
    // SAFETY: it is plain words, the same on all processes, and held here.
    unsafe { fabric.world().run(NativeCollective::Broadcast { root: 0, memory, bytes })? };
    Ok(own)
}

/// What each tells all, which call it together.
pub(super) fn invite_all(fabric: &Arc<dyn Fabric>, own: Invitation) -> Result<Vec<Invitation>> {
    let (count, each) = (fabric.processes(), size_of::<Invitation>());
    let mut all = vec![own; count];
    let recv = ProcessBlocks { memory: all.as_mut_ptr().cast(), layout: BlockLayout::Equal(each) };
    let send = ((&raw const own).cast(), each);
    // SAFETY: they are plain words, as many on all processes, and held here.
    unsafe { fabric.world().run(NativeCollective::Allgather { send, recv })? };
    Ok(all)
}

/// A connection to process `host`.
pub(super) fn address(invitation: &Invitation, host: usize, near: bool) -> Result<Connection> {
    let own = near.then_some(IpAddr::from(Ipv4Addr::LOCALHOST));
    let told = invitation.addresses.iter().filter(|it| **it != [0; 16]);
    let told = told.map(|octets| IpAddr::from(Ipv6Addr::from(*octets)).to_canonical());
    let mut tried = Vec::new();
    for address in own.into_iter().chain(told) {
        let place = SocketAddr::new(address, invitation.port as u16);
        match TcpStream::connect_timeout(&place, REACH).and_then(Connection::new) {
            Ok(connection) => return Ok(connection),
            Err(error) => tried.push(format!("{place}: {error}")),
        }
    }
    Err(Error::unavailable(
        format!("a connection to the failure detector of process {host}"),
        tried.join("; "),
        "let the job's hosts connect to each other over TCP, at any port".into(),
    ))
}

/// The address at which a listener hears all.
pub(super) fn any_address() -> IpAddr {
    let six = Ipv6Addr::UNSPECIFIED;
    if TcpListener::bind((six, 0)).is_ok() { six.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// This host's addresses, as those of the newer kind.
#[cfg(unix)]
pub(super) fn addresses() -> Vec<Ipv6Addr> {
    let mut found = Vec::new();
    let mut list = std::ptr::null_mut();
    // SAFETY: the list is made by the system, looked at until its end, and given back once; an
    // address is of the kind that its family says.
    unsafe {
        if libc::getifaddrs(&mut list) != 0 {
            return found;
        }
        let mut entry = list;
        while let Some(it) = entry.as_ref() {
            if let Some(address) = it.ifa_addr.as_ref() {
                match i32::from(address.sa_family) {
                    libc::AF_INET => {
                        let it = it.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                        let bits = u32::from_be(it.sin_addr.s_addr);
                        found.push(Ipv4Addr::from(bits).to_ipv6_mapped());
                    }
                    libc::AF_INET6 => {
                        let it = it.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                        found.push(Ipv6Addr::from(it.sin6_addr.s6_addr));
                    }
                    _ => {}
                }
            }
            entry = it.ifa_next;
        }
        libc::freeifaddrs(list);
    }
    let elsewhere = |it: &Ipv6Addr| {
        let same = IpAddr::from(*it).to_canonical();
        !same.is_loopback() && (it.segments()[0] & 0xffc0) != 0xfe80
    };
    found.retain(elsewhere);
    found
}

#[cfg(not(unix))]
pub(super) fn addresses() -> Vec<Ipv6Addr> {
    Vec::new()
}

/// A number that nobody can guess.
pub(super) fn secret() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}
