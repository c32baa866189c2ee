//! Push pages: where they are in a node's BAR, who has which, and what came of their pushes.
//!
//! Kernels of today give out none; drivers that do hand a queue pair two pages of the BAR,
//! one for WQEs and one for the doorbell that goes with them.

use std::fmt::Write;

use irdma_engine::push::{Pushed, WINDOW_BYTES};
use irdma_engine::spec::QpId;

use crate::device::Device;
use crate::errno::{EINVAL, ESTALE, Result};
use crate::file::Token;
use crate::profile::Profile;

/// Bits of a push doorbell's value that name the queue pair; those above it are the WQE's
/// index in units of eight quanta.
const QP_BITS: u32 = 20;

/// The pages of a node's BAR, in order: the WQE pages of pushes, a page that is the doorbell
/// page of legacy providers, the doorbell page, the doorbell pages of pushes.
#[derive(Clone, Copy, Debug)]
pub struct BarLayout {
    page_size: u64,
    push_pages: u64,
}

impl BarLayout {
    /// The layout of a device.
    pub fn of(profile: &Profile) -> BarLayout {
        BarLayout { page_size: profile.page_size, push_pages: profile.push_pages.into() }
    }

    /// Bytes at the start that programs store WQEs to.
    pub fn plain_bytes(&self) -> u64 {
        self.push_pages * self.page_size
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        (2 * self.push_pages + 2) * self.page_size
    }

    /// The doorbell page of a legacy provider, which asks for the first page.
    pub fn legacy_doorbell(&self) -> u64 {
        self.plain_bytes()
    }

    /// The doorbell page.
    pub fn doorbell(&self) -> u64 {
        self.plain_bytes() + self.page_size
    }

    /// The WQE page of a push page.
    pub(crate) fn push_wqes(&self, page: u32) -> u64 {
        u64::from(page) * self.page_size
    }

    /// The doorbell page of a push page.
    pub(crate) fn push_doorbell(&self, page: u32) -> u64 {
        self.doorbell() + (u64::from(page) + 1) * self.page_size
    }

    /// The push page whose doorbell page a byte lies in, and where in there.
    fn push_page_at(&self, offset: u64) -> Option<(usize, u64)> {
        let behind = offset.checked_sub(self.push_doorbell(0))?;
        let page = behind / self.page_size;
        (page < self.push_pages).then_some((page as usize, behind % self.page_size))
    }
}

/// Where a queue pair's pushes lie in the BAR of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushPlace {
    /// Whose they are.
    pub qp: QpId,
    /// First byte of the window.
    pub window: u64,
    /// The doorbell.
    pub doorbell: u64,
}

/// The push pages of a card.
#[derive(Debug)]
pub struct PushPages {
    layout: BarLayout,
    /// Byte of both pages at which window and doorbell are.
    offset: u16,
    owners: Vec<Option<QpId>>,
    /// Pushes still to be lost.
    losses: u32,
    counts: Counts,
}

/// What came of pushes.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    taken: u64,
    quanta: u64,
    differing: u64,
    late: u64,
    dropped: u64,
}

impl PushPages {
    /// All of them free.
    pub fn new(profile: &Profile) -> PushPages {
        PushPages {
            layout: BarLayout::of(profile),
            offset: profile.push_offset,
            owners: vec![None; profile.push_pages as usize],
            losses: 0,
            counts: Counts::default(),
        }
    }

    /// Gives a queue pair a page, if one is left.
    pub fn allocate(&mut self, qp: QpId) -> Option<u32> {
        let page = self.owners.iter().position(Option::is_none)?;
        self.owners[page] = Some(qp);
        Some(page as u32)
    }

    /// Takes a page back.
    pub fn free(&mut self, page: u32) {
        if let Some(owner) = self.owners.get_mut(page as usize) {
            *owner = None;
        }
    }

    /// What a program is told of a page: both mmap keys, and the offset in both pages.
    pub fn keys(&self, page: u32) -> (u64, u64, u16) {
        (self.layout.push_wqes(page), self.layout.push_doorbell(page), self.offset)
    }

    fn places(&self) -> impl Iterator<Item = PushPlace> {
        self.owners.iter().enumerate().filter_map(|(page, owner)| {
            let (page, offset) = (page as u32, u64::from(self.offset));
            Some(PushPlace {
                qp: (*owner)?,
                window: self.layout.push_wqes(page) + offset,
                doorbell: self.layout.push_doorbell(page) + offset,
            })
        })
    }
}

impl Device {
    /// Where the pushes of a node's queue pairs lie.
    pub fn push_places(&self, token: Token) -> Vec<PushPlace> {
        let owned =
            |place: &PushPlace| self.hardware.qps.get(&place.qp).is_some_and(|(owner, _)| *owner == token);
        self.hardware.pushes.places().filter(owned).collect()
    }

    /// Where the WQEs of a push doorbell at byte `offset` of a node's BAR lie; `None` if
    /// there is no such doorbell, `EINVAL` if it is not this node's.
    pub fn push_place(&self, token: Token, offset: u64) -> Result<Option<PushPlace>> {
        if self.hardware.pushes.layout.push_page_at(offset).is_none() {
            return Ok(None);
        }
        let mut places = self.push_places(token).into_iter();
        places.find(|place| place.doorbell == offset).map(Some).ok_or(EINVAL)
    }

    /// A store of `value` to a push doorbell; `window` is what lay in its window.
    pub fn push(
        &mut self,
        token: Token,
        place: PushPlace,
        value: u64,
        window: &[u8; WINDOW_BYTES],
    ) -> Result<()> {
        if !self.files.contains_key(&token) {
            return Err(ESTALE);
        }
        if self.hardware.removed {
            return Ok(());
        }
        let value = u32::try_from(value).map_err(|_| EINVAL)?;
        let (chunk, number) = (value >> QP_BITS, value & ((1 << QP_BITS) - 1));
        if number != place.qp.number {
            return Err(EINVAL);
        }
        let pushes = &mut self.hardware.pushes;
        let pushed = if pushes.losses > 0 {
            pushes.losses -= 1;
            self.hardware.engine.drop_push(place.qp);
            Pushed::Dropped
        } else {
            self.hardware.engine.push_sq(place.qp, chunk, window)
        };
        let counts = &mut self.hardware.pushes.counts;
        match pushed {
            Pushed::Taken { quanta, differs } => {
                counts.taken += 1;
                counts.quanta += u64::from(quanta);
                counts.differing += u64::from(differs);
            }
            Pushed::Late => counts.late += 1,
            Pushed::Dropped => counts.dropped += 1,
        }
        self.settle();
        Ok(())
    }

    /// The control command `push`: counts, or losses to come.
    pub(crate) fn control_push(&mut self, words: &[&str]) -> std::result::Result<String, String> {
        match words {
            [] => Ok(self.push_counts()),
            ["drop", count] => {
                self.hardware.pushes.losses = count.parse().map_err(|_| format!("not a number: {count}"))?;
                Ok(String::new())
            }
            _ => Err("use: push [drop COUNT]".into()),
        }
    }

    fn push_counts(&self) -> String {
        let pushes = &self.hardware.pushes;
        let free = pushes.owners.iter().filter(|owner| owner.is_none()).count();
        let counts = pushes.counts;
        let numbers = [
            ("pages", pushes.owners.len() as u64),
            ("free", free as u64),
            ("taken", counts.taken),
            ("quanta", counts.quanta),
            ("differing", counts.differing),
            ("late", counts.late),
            ("dropped", counts.dropped),
        ];
        let mut text = String::new();
        for (name, number) in numbers {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} {number}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(push_pages: u32, push_offset: u16) -> Profile {
        Profile { push_pages, push_offset, page_size: 4096, ..Profile::default() }
    }

    #[test]
    fn without_push_pages_doorbells_are_where_legacy_providers_look() {
        let layout = BarLayout::of(&profile(0, 0));
        assert_eq!((layout.plain_bytes(), layout.bytes()), (0, 8192));
        assert_eq!((layout.legacy_doorbell(), layout.doorbell()), (0, 4096));
        assert_eq!(layout.push_page_at(8192), None);
    }

    #[test]
    fn every_page_of_a_bar_is_one_thing() {
        let layout = BarLayout::of(&profile(3, 0));
        let mut pages: Vec<u64> =
            (0..3).flat_map(|page| [layout.push_wqes(page), layout.push_doorbell(page)]).collect();
        pages.extend([layout.legacy_doorbell(), layout.doorbell()]);
        pages.sort();
        assert_eq!(pages, (0..8).map(|page| page * 4096).collect::<Vec<u64>>());
        assert_eq!(layout.bytes(), 8 * 4096);
        assert_eq!(layout.push_page_at(layout.push_doorbell(2) + 256), Some((2, 256)));
        for elsewhere in [0, layout.doorbell(), layout.bytes(), u64::MAX] {
            assert_eq!(layout.push_page_at(elsewhere), None);
        }
    }

    #[test]
    fn pages_are_given_out_until_none_is_left_and_taken_back() {
        let mut pages = PushPages::new(&profile(2, 256));
        let qp = |number| QpId { function: 0, number };
        let given = [7, 8, 9].map(|number| pages.allocate(qp(number)));
        assert_eq!(given, [Some(0), Some(1), None]);
        assert_eq!(pages.keys(1), (4096, 5 * 4096, 256));
        let places: Vec<PushPlace> = pages.places().collect();
        assert_eq!(places[1], PushPlace { qp: qp(8), window: 4096 + 256, doorbell: 5 * 4096 + 256 });
        pages.free(0);
        pages.free(77);
        assert_eq!(pages.allocate(qp(9)), Some(0));
    }
}
