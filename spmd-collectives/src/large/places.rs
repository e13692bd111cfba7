//! Where in staging areas, and in what two ranks share, data lie.

use spmd_core::Result;

use super::{LargeRound, NOT, SEND, STAGING};

impl LargeRound<'_, '_> {
    /// Where segment `turn` lies in a staging area.
    fn offset(&self, turn: usize) -> usize {
        self.first.wrapping_add(turn) % self.places * self.place
    }

    /// This rank's place for segment `turn`.
    pub(crate) fn place(&self, turn: usize) -> *mut u8 {
        // SAFETY: the area has so many places.
        unsafe { self.stream.unwrap_or(self.staging).add(self.offset(turn)) }
    }

    /// A peer's place for segment `turn`.
    pub(crate) fn place_of(&self, peer: usize, turn: usize) -> Result<*const u8> {
        let area = match self.stream {
            Some(area) => area.cast_const(),
            None => self.reach(peer, STAGING, self.places * self.place)?,
        };
        // SAFETY: the area, checked by `reach`, has so many places.
        Ok(unsafe { area.add(self.offset(turn)) })
    }

    /// Where a piece of segment `turn` lies in what `owner` shares with `peer`, if it goes there.
    fn shared_piece(&self, owner: usize, peer: usize, turn: usize) -> Option<*mut u8> {
        let (share, _) = self.round.share(owner, peer).filter(|_| self.shared)?;
        // SAFETY: it has so many places, of a piece each.
        Some(unsafe { share.add(self.offset(turn)) })
    }

    /// Where this rank shows `peer` its piece of segment `turn`, for that rank alone.
    pub(crate) fn piece_for(&self, peer: usize, turn: usize) -> *mut u8 {
        // SAFETY: a place has a piece for each rank.
        let staged = || unsafe { self.place(turn).add(peer * self.piece) };
        self.shared_piece(self.round.rank(), peer, turn).unwrap_or_else(staged)
    }

    /// Where `peer` shows this rank its piece of segment `turn`.
    pub(crate) fn piece_from(&self, peer: usize, turn: usize) -> Result<*const u8> {
        let me = self.round.rank();
        match self.shared_piece(peer, me, turn) {
            Some(piece) => Ok(piece.cast_const()),
            // SAFETY: a place has a piece for each rank.
            None => Ok(unsafe { self.place_of(peer, turn)?.add(me * self.piece) }),
        }
    }

    /// [`LargeRound::piece_for`] in an exchange of pieces, in which each is read before the next is
    /// shown: every second goes where the peer's came from.
    pub(crate) fn next_for(&self, peer: usize, turn: usize) -> *mut u8 {
        let swapped = (turn % 2 == 1).then(|| self.shared_piece(peer, self.round.rank(), turn - 1));
        swapped.flatten().unwrap_or_else(|| self.piece_for(peer, turn))
    }

    /// [`LargeRound::piece_from`] in such an exchange.
    pub(crate) fn next_from(&self, peer: usize, turn: usize) -> Result<*const u8> {
        let swapped = (turn % 2 == 1).then(|| self.shared_piece(self.round.rank(), peer, turn - 1));
        swapped
            .flatten()
            .map_or_else(|| self.piece_from(peer, turn), |piece| Ok(piece.cast_const()))
    }

    /// Where this rank shows all what it makes of the pieces for it: where the next rank's was,
    /// which it alone has read, or apart from them.
    pub(crate) fn result(&self, turn: usize) -> *mut u8 {
        let (me, ranks) = (self.round.rank(), self.round.size());
        // SAFETY: a place has a piece more than ranks.
        let staged = || unsafe { self.place(turn).add(ranks * self.piece) };
        self.shared_piece((me + 1) % ranks, me, turn).unwrap_or_else(staged)
    }

    /// [`LargeRound::result`] of a peer.
    pub(crate) fn result_of(&self, peer: usize, turn: usize) -> Result<*const u8> {
        let ranks = self.round.size();
        match self.shared_piece((peer + 1) % ranks, peer, turn) {
            Some(piece) => Ok(piece.cast_const()),
            // SAFETY: as above.
            None => Ok(unsafe { self.place_of(peer, turn)?.add(ranks * self.piece) }),
        }
    }

    /// Where a peer shows data that start `offset` bytes into what it sends, `total` bytes: there,
    /// if that can be reached, else `staged`.
    ///
    /// # Safety
    /// `offset` is within the data.
    pub(crate) unsafe fn source(
        &self,
        peer: usize,
        (offset, total): (usize, usize),
        staged: impl FnOnce() -> Result<*const u8>,
    ) -> Result<*const u8> {
        match self.shows(peer) != NOT {
            // SAFETY: the offset is within the data (this function's contract), which are `total`
            // bytes, as `reach` has checked.
            true => Ok(unsafe { self.reach(peer, SEND, total)?.add(offset) }),
            false => staged(),
        }
    }
}
