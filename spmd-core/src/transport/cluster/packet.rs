//! What goes from process to process, as bytes.

use super::one_sided::{MOST, Pattern, Request, What};
use crate::transport::fabric::MAX_PACKET;
use crate::transport::message::Envelope;

/// Data of a message that go in its packet, at most: room is left for what precedes them.
pub(super) const INLINE: usize = 8 * 1024;
const HEADER: usize = 64;
const _: () = assert!(HEADER + INLINE <= MAX_PACKET && HEADER + MOST <= MAX_PACKET);

const TEXT: u32 = 1;
const MESSAGE: u32 = 2;
const ANNOUNCED: u32 = 3;
const CALLS: u32 = 4;
const RECEIVED: u32 = 5;
const REQUEST: u32 = 6;
const ANSWER: u32 = 7;

/// A packet.
pub(crate) enum Packet<'a> {
    /// What rank `of` means by this number.
    Text { of: u32, number: u16, text: &'a str },
    /// A message to rank `to` with its data.
    Message { to: u32, envelope: Envelope, data: &'a [u8] },
    /// A message to rank `to` whose data are given as this payload.
    Announced { to: u32, envelope: Envelope, payload: u32 },
    /// The last calls of a communicator that `leader` has dropped, or that lasts to the end.
    Calls { leader: u32, context: u64, rounds: &'a [u8] },
    /// Rank `by` has received so many bytes of small messages that rank `of` has sent.
    Received { by: u32, of: u32, bytes: u64 },
    /// Something to be done to a part of a window.
    Request(Request<'a>),
    /// What a request with this ticket is answered.
    Answer { window: u64, ticket: u64, data: &'a [u8] },
}

impl<'a> Packet<'a> {
    /// The packet as bytes, in two pieces.
    pub(super) fn pieces(&self) -> ([u8; HEADER], &'a [u8]) {
        match self {
            Packet::Text { of, number, text } => {
                (words([TEXT, *of, u32::from(*number), 0], None), text.as_bytes())
            }
            Packet::Message { to, envelope, data } => {
                (words([MESSAGE, *to, 0, 0], Some(envelope)), *data)
            }
            Packet::Announced { to, envelope, payload } => {
                (words([ANNOUNCED, *to, *payload, 0], Some(envelope)), &[][..])
            }
            Packet::Calls { leader, context, rounds } => {
                let (low, high) = (*context as u32, (*context >> 32) as u32);
                (words([CALLS, *leader, low, high], None), *rounds)
            }
            Packet::Received { by, of, bytes } => {
                let mut header = words([RECEIVED, *by, *of, 0], None);
                header[16..24].copy_from_slice(&bytes.to_le_bytes());
                (header, &[][..])
            }
            Packet::Request(request) => (request_words(request), request.data),
            Packet::Answer { window, ticket, data } => {
                let mut header = words([ANSWER, 0, 0, 0], None);
                header[16..24].copy_from_slice(&window.to_le_bytes());
                header[24..32].copy_from_slice(&ticket.to_le_bytes());
                (header, *data)
            }
        }
    }

    /// The packet in these bytes, if they are one.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Packet<'a>> {
        let (header, data) = bytes.split_at_checked(HEADER)?;
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let long = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        let envelope = Envelope {
            context: long(16),
            count: long(24),
            bytes: usize::try_from(long(32)).ok()?,
            source: word(40),
            tag: word(44),
            dtype: long(48),
            dtype_text: word(56) as u16,
            file: (word(56) >> 16) as u16,
            line: word(60),
            size: word(12),
        };
        match word(0) {
            TEXT => {
                let text = std::str::from_utf8(data).ok()?;
                Some(Packet::Text { of: word(4), number: word(8) as u16, text })
            }
            MESSAGE if envelope.bytes == data.len() => {
                Some(Packet::Message { to: word(4), envelope, data })
            }
            ANNOUNCED => Some(Packet::Announced { to: word(4), envelope, payload: word(8) }),
            RECEIVED => Some(Packet::Received { by: word(4), of: word(8), bytes: long(16) }),
            REQUEST => Some(Packet::Request(Request {
                window: long(16),
                by: word(4),
                target: word(8),
                ticket: long(24),
                what: What::of(word(12))?,
                pattern: Pattern {
                    first: usize::try_from(long(32)).ok()?,
                    blocks: word(48) as usize,
                    block: word(52) as usize,
                    stride: usize::try_from(long(40)).ok()?,
                },
                data,
            })),
            ANSWER => Some(Packet::Answer { window: long(16), ticket: long(24), data }),
            CALLS => Some(Packet::Calls { leader: word(4), context: long(8), rounds: data }),
            _ => None,
        }
    }
}

fn request_words(request: &Request<'_>) -> [u8; HEADER] {
    let Request { window, by, target, ticket, what, pattern, .. } = request;
    let mut bytes = words([REQUEST, *by, *target, what.code()], None);
    let longs = [*window, *ticket, pattern.first as u64, pattern.stride as u64];
    let mut put = |at: usize, word: &[u8]| bytes[at..at + word.len()].copy_from_slice(word);
    longs.iter().enumerate().for_each(|(index, it)| put(16 + 8 * index, &it.to_le_bytes()));
    // A piece of a part has fewer.
    put(48, &(pattern.blocks as u32).to_le_bytes());
    put(52, &(pattern.block as u32).to_le_bytes());
    bytes
}

fn words(first: [u32; 4], envelope: Option<&Envelope>) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    let mut put = |at: usize, word: &[u8]| bytes[at..at + word.len()].copy_from_slice(word);
    first.iter().enumerate().for_each(|(index, word)| put(4 * index, &word.to_le_bytes()));
    if let Some(envelope) = envelope {
        put(16, &envelope.context.to_le_bytes());
        put(24, &envelope.count.to_le_bytes());
        put(32, &(envelope.bytes as u64).to_le_bytes());
        put(40, &envelope.source.to_le_bytes());
        put(44, &envelope.tag.to_le_bytes());
        put(12, &envelope.size.to_le_bytes());
        put(48, &envelope.dtype.to_le_bytes());
        put(56, &envelope.dtype_text.to_le_bytes());
        put(58, &envelope.file.to_le_bytes());
        put(60, &envelope.line.to_le_bytes());
    }
    bytes
}

/// Reads any bytes as a packet; one that is one is written as the same bytes again.
#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Some(packet) = Packet::read(bytes) {
        let (header, data) = packet.pieces();
        assert!(Packet::read(&[&header, data].concat()).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Packet<'_> {
        fn with_bytes(&self, f: impl FnOnce(&[u8])) {
            let (header, data) = self.pieces();
            f(&[&header, data].concat());
        }
    }

    #[test]
    fn packets_come_back_and_nonsense_is_none() {
        let envelope = Envelope {
            context: 1 << 40,
            source: 7,
            tag: u32::MAX,
            count: 3,
            bytes: 5,
            size: 1,
            dtype: 9 << 50 | 9,
            dtype_text: 11,
            file: 500,
            line: 70_000,
        };
        let message = Packet::Message { to: 2, envelope, data: b"hello" };
        message.with_bytes(|bytes| {
            let Some(Packet::Message { to: 2, envelope: came, data: b"hello" }) =
                Packet::read(bytes)
            else {
                panic!("not what was sent");
            };
            assert_eq!(format!("{came:?}"), format!("{envelope:?}"));
            assert!(Packet::read(&bytes[..bytes.len() - 1]).is_none());
            assert!(Packet::read(&bytes[..HEADER - 1]).is_none());
        });
        let announced = Packet::Announced { to: 2, envelope, payload: 77 };
        announced.with_bytes(|bytes| {
            assert!(matches!(Packet::read(bytes), Some(Packet::Announced { payload: 77, .. })));
        });
        Packet::Text { of: 3, number: 4, text: "src/main.rs" }.with_bytes(|bytes| {
            let read = Packet::read(bytes);
            assert!(matches!(read, Some(Packet::Text { of: 3, number: 4, text: "src/main.rs" })));
        });
        Packet::Calls { leader: 3, context: 5 << 40 | 7, rounds: b"some" }.with_bytes(|bytes| {
            let Some(Packet::Calls { leader: 3, context, rounds: b"some" }) = Packet::read(bytes)
            else {
                panic!("not what was sent");
            };
            assert_eq!(context, 5 << 40 | 7);
        });
        Packet::Received { by: 3, of: 1, bytes: 5 << 40 }.with_bytes(|bytes| {
            let read = Packet::read(bytes);
            assert!(
                matches!(read, Some(Packet::Received { by: 3, of: 1, bytes }) if bytes == 5 << 40)
            );
        });
        let pattern = Pattern { first: 1 << 40, blocks: 3, block: 5, stride: 1 << 33 };
        let (window, by, target, ticket) = (5 << 40 | 7, 1, 2, 3 << 40);
        let (what, data) = (What::Swap, &b"words"[..]);
        let request = Request { window, by, target, ticket, what, pattern, data };
        Packet::Request(request).with_bytes(|bytes| {
            assert!(matches!(Packet::read(bytes), Some(Packet::Request(it)) if it == request));
            let mut other = bytes.to_vec();
            other[12] = 200;
            assert!(Packet::read(&other).is_none());
        });
        Packet::Answer { window, ticket, data }.with_bytes(|bytes| {
            let Some(Packet::Answer { data: b"words", window: of, ticket: to }) =
                Packet::read(bytes)
            else {
                panic!("not what was sent");
            };
            assert_eq!((of, to), (window, ticket));
        });
        assert!(Packet::read(&[0; 100]).is_none());
    }
}
