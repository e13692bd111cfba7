//! Memory of messages that were kept, for those that are kept next.
//!
//! The allocator gives the memory of a flood back to the system when it is over, and each of its
//! pages costs more when it comes again than the copy into it.

use super::ring::EAGER;

/// The smallest and the largest piece; those between are twice as large each.
const LEAST: usize = 64;
const CLASSES: usize = (EAGER / LEAST).ilog2() as usize + 1;

/// How much memory is kept at most.
const MOST: usize = 16 << 20;

#[derive(Default)]
pub(super) struct Spare {
    /// By size, each vector of the capacity of its class, and empty.
    pieces: [Vec<Vec<u8>>; CLASSES],
    bytes: usize,
}

/// The class of pieces with room for so many bytes.
fn class_of(len: usize) -> Option<usize> {
    (0 < len && len <= EAGER).then(|| (len.div_ceil(LEAST)).next_power_of_two().ilog2() as usize)
}

impl Spare {
    /// An empty vector with room for so many bytes.
    pub(super) fn take(&mut self, len: usize) -> Vec<u8> {
        let Some(class) = class_of(len) else { return Vec::with_capacity(len) };
        match self.pieces[class].pop() {
            Some(piece) => {
                self.bytes -= piece.capacity();
                piece
            }
            None => Vec::with_capacity(LEAST << class),
        }
    }

    /// Keeps the memory of a vector, if it is one of [`Spare::take`] and there is not too much.
    pub(super) fn give(&mut self, mut piece: Vec<u8>) {
        let bytes = piece.capacity();
        if let Some(class) = class_of(bytes)
            && bytes == LEAST << class
            && self.bytes + bytes <= MOST
        {
            piece.clear();
            self.bytes += bytes;
            self.pieces[class].push(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_room() {
        let mut spare = Spare::default();
        for len in [0, 1, 256, 257, 511, 512, 513, 1024, 4095, 4097, EAGER, EAGER + 1] {
            for _ in 0..2 {
                let mut piece = spare.take(len);
                assert!(piece.is_empty() && piece.capacity() >= len);
                piece.resize(len, 7);
                spare.give(piece);
            }
        }
    }

    #[test]
    fn a_piece_is_used_again_and_no_more_than_the_bound_are_kept() {
        let mut spare = Spare::default();
        let piece = spare.take(5000);
        let place = piece.as_ptr();
        spare.give(piece);
        let again = spare.take(EAGER);
        assert_eq!(again.as_ptr(), place);
        let pieces: Vec<_> = (0..2 * MOST / EAGER).map(|_| spare.take(EAGER)).collect();
        pieces.into_iter().for_each(|piece| spare.give(piece));
        assert_eq!(spare.bytes, MOST);
        assert_eq!(spare.pieces[CLASSES - 1].len(), MOST / EAGER);
    }
}
