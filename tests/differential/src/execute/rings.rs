//! Work queues as the device reads them, and everything else that is written into their memory.

use super::trace::Trace;

/// Bytes of a quantum.
const QUANTUM: usize = 32;
/// Words of a quantum.
const WORDS: usize = 4;
/// In the last word of a quantum, and in a WQE's header.
const VALID: u64 = 1 << 63;

/// One quantum.
type Quantum = [u64; WORDS];

/// A ring in the provider's memory, and what stood in it at the last look.
#[derive(Debug)]
struct Ring {
    address: *const Quantum,
    before: Vec<Quantum>,
}

impl Ring {
    /// # Safety
    /// `bytes` at `address` can be read for as long as the ring is looked at.
    unsafe fn new(address: u64, bytes: usize) -> Ring {
        let mut ring = Ring { address: address as *const Quantum, before: vec![[0; WORDS]; bytes / QUANTUM] };
        for index in 0..ring.before.len() {
            ring.before[index] = ring.read(index);
        }
        ring
    }

    fn read(&self, index: usize) -> Quantum {
        assert!(index < self.before.len(), "within the ring");
        // SAFETY: as promised to `new`; no post is going on at the same time.
        unsafe { self.address.add(index).read_volatile() }
    }

    /// Which quanta have changed; notes what they are now.
    fn changes(&mut self) -> Vec<usize> {
        (0..self.before.len())
            .filter(|&index| {
                let now = self.read(index);
                let changed = now != self.before[index];
                self.before[index] = now;
                changed
            })
            .collect()
    }
}

/// A send ring.
#[derive(Debug)]
pub struct SendRing {
    ring: Ring,
    /// Where the device expects the next WQE.
    head: usize,
    /// The valid bit that this one will have.
    valid: bool,
}

impl SendRing {
    /// # Safety
    /// `bytes` at `address` can be read for as long as the ring is looked at.
    pub unsafe fn new(address: u64, bytes: usize, head: usize) -> SendRing {
        // SAFETY: as the caller promises.
        SendRing { ring: unsafe { Ring::new(address, bytes) }, head, valid: true }
    }

    /// Tells the WQEs that are new, and where else something has changed.
    pub fn look(&mut self, trace: &mut Trace, qp: u32) {
        let mut changed = self.ring.changes();
        if changed.is_empty() {
            return;
        }
        while let Some((quanta, wqe)) = self.next_wqe() {
            let mut line = trace.line("wqe").with("qp", qp).with("at", self.head);
            for (number, word) in wqe.iter().flatten().enumerate() {
                line = line.hex(format_args!("q{number}"), *word);
            }
            drop(line);
            let taken = self.head..self.head + quanta;
            changed.retain(|index| !taken.contains(index));
            self.head += quanta;
            if self.head >= self.ring.before.len() {
                self.head = 0;
                self.valid = !self.valid;
            }
        }
        tell_others(trace, "sq", qp, &self.ring, &changed);
    }

    /// The WQE at the head, if there is one.
    fn next_wqe(&self) -> Option<(usize, &[Quantum])> {
        let header = self.ring.before[self.head][3];
        if (header & VALID != 0) != self.valid {
            return None;
        }
        let quanta = quanta(header);
        let wqe = self.ring.before.get(self.head..self.head + quanta)?;
        Some((quanta, wqe))
    }
}

/// Quanta of the send WQE with that header (docs/hardware.md), of whatever generation: what is
/// inline is sorted by its first few bytes alone, as a longer WQE of GEN1 has two quanta.
fn quanta(header: u64) -> usize {
    let inline = header >> 57 & 1 != 0;
    if inline {
        let length = (header >> 48 & 0xff) as usize;
        return if irdma_tests::device::Device::present().generation == 1 {
            1 + usize::from(length > 16)
        } else {
            1 + length.saturating_sub(8).div_ceil(31)
        };
    }
    let further = (header >> 38 & 0xf) as usize;
    1 + further.div_ceil(2)
}

/// A receive ring.
#[derive(Debug)]
pub struct ReceiveRing {
    ring: Ring,
}

impl ReceiveRing {
    /// # Safety
    /// `bytes` at `address` can be read for as long as the ring is looked at.
    pub unsafe fn new(address: u64, bytes: usize) -> ReceiveRing {
        // SAFETY: as the caller promises.
        ReceiveRing { ring: unsafe { Ring::new(address, bytes) } }
    }

    /// Tells the quanta that are new, of a receive queue (`rq`) or a shared one (`srq`).
    pub fn look(&mut self, trace: &mut Trace, name: &str, number: u32) {
        let owner = if name == "rq" { "qp" } else { name };
        for index in self.ring.changes() {
            let mut line = trace.line(name).with(owner, number).with("at", index);
            for (number, word) in self.ring.before[index].iter().enumerate() {
                line = line.hex(format_args!("q{number}"), *word);
            }
        }
    }
}

/// Runs of changed quanta, shortened where all bytes are the same.
fn tell_others(trace: &mut Trace, name: &str, qp: u32, ring: &Ring, changed: &[usize]) {
    let mut rest = changed;
    while let Some(&first) = rest.first() {
        let follows =
            |index: usize| rest[index] == first + index && ring.before[rest[index]] == ring.before[first];
        let count = (1..rest.len()).find(|&index| !follows(index)).unwrap_or(rest.len());
        let mut line = trace.line(name).with("qp", qp).with("at", first).with("count", count);
        for (number, word) in ring.before[first].iter().enumerate() {
            line = line.hex(format_args!("q{number}"), *word);
        }
        drop(line);
        rest = &rest[count..];
    }
}
