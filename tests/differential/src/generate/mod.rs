//! Random programs: a beginning that makes objects, and then anything.

mod control;
mod create;
mod shared;
mod work;

use rdma_core_sys::bindings::*;

use crate::program::{Change, Program, Slot, Step, slots};
use crate::random::Random;

/// Access to a region for everything.
const ALL: u32 =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;

/// What a program has made so far, as far as it has succeeded.
#[derive(Debug, Default)]
struct Model {
    pds: [bool; slots::PDS as usize],
    mrs: [Option<Region>; slots::MRS as usize],
    /// Their types.
    mws: [Option<u32>; slots::MWS as usize],
    channels: [bool; slots::CHANNELS as usize],
    cqs: [Option<bool>; slots::CQS as usize],
    /// Elements of their receives.
    srqs: [Option<u32>; slots::SRQS as usize],
    qps: [Option<QueuePair>; slots::QPS as usize],
    ahs: [bool; slots::AHS as usize],
}

/// A region of the arena.
#[derive(Clone, Copy, Debug)]
struct Region {
    offset: u32,
    length: u32,
}

/// A queue pair.
#[derive(Clone, Copy, Debug)]
struct QueuePair {
    is_datagram: bool,
    peer: Slot,
    srq: Option<Slot>,
    send_sge: u32,
    recv_sge: u32,
    inline: u32,
}

/// Makes programs.
struct Generator<'a> {
    random: &'a mut Random,
    /// That of the device.
    generation: u8,
    model: Model,
    program: Program,
}

/// A random program for a device of that generation.
pub fn generate(random: &mut Random, generation: u8) -> Program {
    let mut generator = Generator { random, generation, model: Model::default(), program: Vec::new() };
    generator.begin();
    for _ in 0..generator.random.within(4, 40) {
        generator.any();
    }
    generator.program
}

/// A number in use of a table.
fn any_of<T>(random: &mut Random, table: &[T], is_used: impl Fn(&T) -> bool) -> Option<Slot> {
    let used: Vec<_> = (0..table.len()).filter(|&slot| is_used(&table[slot])).collect();
    (!used.is_empty()).then(|| random.of(&used) as Slot)
}

impl Generator<'_> {
    fn add(&mut self, step: Step) {
        self.program.push(step);
    }

    /// Objects that most programs need.
    fn begin(&mut self) {
        if !self.random.once_in(8) {
            // What is posted to a queue pair in error ends the comparison on the third generation, see the faults.
            let posts_on = self.generation < 3 || self.random.once_in(8);
            self.add(Step::Careful { posts_on });
        }
        self.alloc_pd(0);
        for mr in 0..self.random.within(1, 3) as Slot {
            self.register(mr, true);
        }
        if self.random.once_in(3) {
            self.model.channels[0] = true;
            self.add(Step::CreateChannel { channel: 0 });
        }
        let cqs = self.random.within(1, 2) as Slot;
        for cq in 0..cqs {
            self.create_cq(cq, true);
        }
        if self.generation == 3 {
            if self.random.once_in(2) {
                self.create_srq(0, true);
            }
            if self.random.once_in(3) {
                self.alloc_mw(0, true);
            }
        }
        for qp in 0..self.random.within(1, 3) as Slot {
            self.create_qp(qp, true);
        }
        self.connect_all();
        // On iWARP the kernel's own work completes first.
        if !self.random.once_in(8) {
            self.add(Step::Run { times: 1 });
            for cq in 0..cqs {
                self.add(Step::Poll { cq, count: 32 });
            }
        }
    }

    /// Brings queue pairs to work, connected to themselves or in pairs.
    fn connect_all(&mut self) {
        let used: Vec<Slot> =
            (0..slots::QPS).filter(|&qp| self.model.qps[usize::from(qp)].is_some()).collect();
        for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            for &qp in &used {
                self.change(qp, state);
            }
        }
    }

    fn change(&mut self, qp: Slot, state: u32) {
        let Some(pair) = self.model.qps[usize::from(qp)] else { return };
        let patience = self.random.of(&[0, 1 << 5 | 1, 7 << 5 | 14, 0xff, 2 << 5 | 12]);
        // With atomic operations where there are any.
        let usual = if self.generation == 3 { 15 } else { 7 };
        let access = self.random.of(&[usual, usual, usual, 15, 1, 0]);
        let change = Change { state, peer: pair.peer, mask: 0, access, patience, port: 1, gid_index: 0 };
        self.add(Step::ModifyQp { qp, change });
    }

    /// One more step or a few.
    fn any(&mut self) {
        let what = self.random.weighted(&[
            (30, Self::post_send as fn(&mut Self)),
            (18, Self::post_recv),
            (20, Self::run),
            (20, Self::poll),
            (6, Self::control),
            (3, Self::round),
            (2, Self::events),
            (if self.generation == 3 { 3 } else { 0 }, Self::life_of_a_window),
        ]);
        what(self);
    }

    /// A message from posting to polling.
    fn round(&mut self) {
        self.post_recv();
        self.post_send();
        self.run();
        self.poll();
        self.poll();
    }

    fn run(&mut self) {
        let times = self.random.weighted(&[(20, 1), (3, 2), (1, 30)]);
        self.add(Step::Run { times });
    }

    fn poll(&mut self) {
        let Some(cq) = any_of(self.random, &self.model.cqs, Option::is_some) else { return };
        let count = self.random.weighted(&[(4, 1), (4, 2), (10, 32), (1, 0)]);
        if self.model.cqs[usize::from(cq)] == Some(true) && !self.random.once_in(4) {
            self.add(Step::PollEx { cq, count: count.max(1) as u8 });
        } else {
            self.add(Step::Poll { cq, count });
        }
    }

    fn events(&mut self) {
        if let Some(cq) = any_of(self.random, &self.model.cqs, Option::is_some) {
            let solicited = self.random.once_in(3);
            self.add(Step::Arm { cq, solicited });
        }
        if let Some(channel) = any_of(self.random, &self.model.channels, |used| *used) {
            self.post_send();
            self.run();
            self.add(Step::TakeEvents { channel });
        }
        if self.random.once_in(3) {
            self.add(Step::TakeAsyncEvents);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_gives_one_program_that_survives_being_written_down() {
        for seed in 0..200 {
            let program = generate(&mut Random::new(seed), 2);
            assert_eq!(program, generate(&mut Random::new(seed), 2));
            let text = serde_json::to_string(&program).unwrap();
            assert_eq!(serde_json::from_str::<Program>(&text).unwrap(), program);
        }
    }

    #[test]
    fn every_kind_of_step_comes() {
        let name = |step: &Step| {
            let text = format!("{step:?}");
            text.split([' ', '{']).next().unwrap_or_default().to_owned()
        };
        // Without shared receive queues only their creation is tried.
        for (generation, count) in [(1, 35), (2, 35), (3, 39)] {
            let programs = (0..2000).flat_map(|seed| generate(&mut Random::new(seed), generation));
            let kinds: BTreeSet<String> = programs.map(|step| name(&step)).collect();
            assert_eq!(kinds.len(), count, "{kinds:?}");
        }
    }
}
