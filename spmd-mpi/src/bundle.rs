//! Packets in a message of MPI's: each behind its length. Most messages have one; packets that wait
//! go several at a time, as MPI takes more for a short message than that has.

use spmd_core::transport::fabric::MAX_PACKET;

/// What says how long a packet is.
type Length = u32;
const LENGTH: usize = size_of::<Length>();

/// Bytes of a message at most.
pub(crate) const MAX_MESSAGE: usize = MAX_PACKET + LENGTH;

/// Appends a packet, in two pieces, to a message.
#[inline]
pub(crate) fn append(message: &mut Vec<u8>, packet: [&[u8]; 2]) {
    let bytes = packet[0].len() + packet[1].len();
    assert!(bytes <= MAX_PACKET, "a packet of {bytes} bytes");
    message.extend_from_slice(&(bytes as Length).to_le_bytes());
    packet.iter().for_each(|piece| message.extend_from_slice(piece));
}

/// The same for a message that has packets, if there is room for this one. Says whether.
pub(crate) fn append_if_room(message: &mut Vec<u8>, packet: [&[u8]; 2]) -> bool {
    let room = MAX_MESSAGE - message.len();
    if LENGTH + packet[0].len() + packet[1].len() > room {
        return false;
    }
    // Once, not by and by: many may wait.
    message.reserve_exact(room);
    append(message, packet);
    true
}

/// The first packet of a message, or of what is left of it, and what comes after. None at the end,
/// or of what is no packet.
#[inline]
pub(crate) fn first(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = message.split_first_chunk::<LENGTH>()?;
    rest.split_at_checked(Length::from_le_bytes(*length) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(mut message: &[u8]) -> Vec<Vec<u8>> {
        let next = || {
            let (packet, rest) = first(message)?;
            message = rest;
            Some(packet.to_vec())
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn packets_come_as_they_went() {
        let mut message = Vec::new();
        append(&mut message, [b"one", b" packet"]);
        assert!(
            append_if_room(&mut message, [b"", b""]) && append_if_room(&mut message, [b"2", b""])
        );
        assert_eq!(packets(&message), [&b"one packet"[..], b"", b"2"]);
    }

    #[test]
    fn a_message_has_a_bound() {
        let (mut message, mut count) = (Vec::new(), 1);
        append(&mut message, [&[1; 60], &[]]);
        while append_if_room(&mut message, [&[1; 50], &[2; 10]]) {
            count += 1;
        }
        assert_eq!((count, message.len()), (MAX_MESSAGE / 64, MAX_MESSAGE / 64 * 64));
        assert_eq!((packets(&message).len(), message.capacity()), (count, MAX_MESSAGE));
        // The largest one is alone in its message.
        let mut message = Vec::new();
        append(&mut message, [&[1; MAX_PACKET], &[]]);
        assert!(message.len() == MAX_MESSAGE && !append_if_room(&mut message, [&[], &[]]));
        assert_eq!(packets(&message), [[1; MAX_PACKET]]);
    }

    #[test]
    fn what_is_no_packet_ends_a_message() {
        let mut message = Vec::new();
        append(&mut message, [b"whole", b""]);
        append(&mut message, [b"cut off", b""]);
        let cut = |bytes: usize| packets(&message[..bytes]).len();
        assert_eq!(
            [0, 3, 8, 9, 12, message.len() - 1, message.len()].map(cut),
            [0, 0, 0, 1, 1, 1, 2]
        );
    }
}
