//! Moving payload between checked pieces of memory.

use crate::engine::Engine;
use crate::mr::{Place, Protected, Right, Segment};
use crate::platform::{CopyFault, MemoryFault, Platform};
use crate::qp::Qp;
use crate::spec::{PdId, QpId};
use crate::table::Table;
use crate::wqe::{Fragment, Payload};

/// What is to be sent, ready to be read.
#[derive(Debug)]
pub(crate) enum Source<'a> {
    Inline(&'a [u8]),
    Segments(Vec<Segment>),
}

/// A walk over segments, a piece at a time.
struct Cursor<'a> {
    segments: &'a [Segment],
    used: u64,
}

impl<'a> Cursor<'a> {
    fn new(segments: &'a [Segment]) -> Self {
        Self { segments, used: 0 }
    }

    /// The next piece, of at most `most` (not zero) bytes.
    fn next(&mut self, most: u64) -> Option<Segment> {
        loop {
            let (first, rest) = self.segments.split_first()?;
            let left = first.length - self.used;
            if left > 0 {
                let length = left.min(most);
                let piece = Segment { place: first.place, offset: first.offset + self.used, length };
                self.used += length;
                return Some(piece);
            }
            self.segments = rest;
            self.used = 0;
        }
    }
}

/// What segments are pieces of.
struct Memories<'a, B> {
    protected: &'a Table<Protected<B>>,
    qps: &'a Table<Qp<B>>,
}

impl<'a, B> Memories<'a, B> {
    fn backing(&self, segment: &Segment) -> Result<&'a B, MemoryFault> {
        match segment.place {
            Place::Region(id) => match self.protected.get(id) {
                Some(Protected::Region(region)) => Ok(&region.memory.backing),
                _ => Err(MemoryFault),
            },
            Place::Physical(qp) => self.qps.get(qp).and_then(|qp| qp.privileged.as_ref()).ok_or(MemoryFault),
        }
    }
}

impl<P: Platform> Engine<P> {
    /// Checks `fragments` for local work on `qp`, as far as `length` bytes reach; else the
    /// event code. Empty fragments are not looked at.
    pub(crate) fn local_segments(
        &self,
        qp: QpId,
        pd: PdId,
        fragments: &[Fragment],
        length: u64,
        right: Right,
    ) -> Result<Vec<Segment>, u16> {
        let mut left = length;
        let mut segments = Vec::with_capacity(fragments.len());
        for fragment in fragments {
            let part = left.min(fragment.length.into());
            if part > 0 {
                segments.push(self.resolve(qp, pd, fragment.key, fragment.address, part, right)?);
                left -= part;
            }
        }
        Ok(segments)
    }

    /// Checks what `payload` names for reading; else the event code.
    pub(crate) fn local_source<'a>(
        &self,
        qp: QpId,
        pd: PdId,
        payload: &'a Payload,
    ) -> Result<Source<'a>, u16> {
        match payload {
            Payload::Inline { bytes, length } => Ok(Source::Inline(&bytes[..*length])),
            Payload::Fragments(fragments) => self
                .local_segments(qp, pd, fragments.as_slice(), fragments.length(), Right::LocalRead)
                .map(Source::Segments),
        }
    }

    /// Writes all of `source` into `target`, which is as long or longer.
    pub(crate) fn deliver(&mut self, source: &Source<'_>, target: &[Segment]) -> Result<(), CopyFault> {
        match source {
            Source::Inline(bytes) => {
                self.scatter(bytes, target).map_err(|MemoryFault| CopyFault::Destination)
            }
            Source::Segments(segments) => self.transfer(segments, target),
        }
    }

    /// Copies all of `from` into `to`, which is as long or longer.
    pub(crate) fn transfer(&mut self, from: &[Segment], to: &[Segment]) -> Result<(), CopyFault> {
        let memories = Memories { protected: &self.protected, qps: &self.qps };
        if let ([from], [to, ..]) = (from, to)
            && from.length <= to.length
        {
            let source = memories.backing(from).map_err(|MemoryFault| CopyFault::Source)?;
            let target = memories.backing(to).map_err(|MemoryFault| CopyFault::Destination)?;
            let length = from.length;
            return self.platform.copy(source, from.offset, target, to.offset, length, &mut self.buffer.0);
        }
        let mut reader = Cursor::new(from);
        let mut writer = Cursor::new(to);
        loop {
            let mut filled = 0;
            while filled < self.buffer.0.len() {
                let Some(piece) = reader.next((self.buffer.0.len() - filled) as u64) else { break };
                let end = filled + piece.length as usize;
                memories
                    .backing(&piece)
                    .and_then(|source| {
                        self.platform.read(source, piece.offset, &mut self.buffer.0[filled..end])
                    })
                    .map_err(|MemoryFault| CopyFault::Source)?;
                filled = end;
            }
            if filled == 0 {
                return Ok(());
            }
            let bytes = &self.buffer.0[..filled];
            write_at(&mut self.platform, &memories, bytes, &mut writer)
                .map_err(|MemoryFault| CopyFault::Destination)?;
        }
    }

    /// Writes `bytes` into `target`, which is as long or longer.
    pub(crate) fn scatter(&mut self, bytes: &[u8], target: &[Segment]) -> Result<(), MemoryFault> {
        let memories = Memories { protected: &self.protected, qps: &self.qps };
        write_at(&mut self.platform, &memories, bytes, &mut Cursor::new(target))
    }

    /// Appends all of `source` to `packet`.
    pub(crate) fn gather(&mut self, source: &Source<'_>, packet: &mut Vec<u8>) -> Result<(), MemoryFault> {
        match source {
            Source::Inline(bytes) => packet.extend_from_slice(bytes),
            Source::Segments(segments) => {
                let memories = Memories { protected: &self.protected, qps: &self.qps };
                for piece in segments {
                    let start = packet.len();
                    packet.resize(start + piece.length as usize, 0);
                    self.platform.read(memories.backing(piece)?, piece.offset, &mut packet[start..])?;
                }
            }
        }
        Ok(())
    }
}

fn write_at<P: Platform>(
    platform: &mut P,
    memories: &Memories<'_, P::Backing>,
    mut bytes: &[u8],
    writer: &mut Cursor<'_>,
) -> Result<(), MemoryFault> {
    while !bytes.is_empty() {
        let piece = writer.next(bytes.len() as u64).ok_or(MemoryFault)?;
        let (now, later) = bytes.split_at(piece.length as usize);
        platform.write(memories.backing(&piece)?, piece.offset, now)?;
        bytes = later;
    }
    Ok(())
}
