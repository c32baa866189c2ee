//! Steps that change, ask about and destroy objects, and commands that fail.

use rdma_core_sys::bindings::*;

use super::{ALL, Generator, any_of};
use crate::program::{Change, Command, Slot, Step, slots};

impl Generator<'_> {
    pub(super) fn control(&mut self) {
        let what = self.random.weighted(&[
            (3, Self::more_objects as fn(&mut Self)),
            (3, Self::destroy),
            (4, Self::states),
            (2, Self::resize),
            (2, Self::query),
            (1, Self::reregister),
            (1, Self::multicast),
            (if self.generation == 3 { 3 } else { 1 }, Self::shared),
            (1, Self::fail),
        ]);
        what(self);
    }

    /// Destroys anything, with or without users.
    fn destroy(&mut self) {
        let below = |generator: &mut Self, limit: u8| generator.random.below(limit.into()) as Slot;
        let step = match self.random.below(9) {
            0 => Step::DeallocPd { pd: below(self, slots::PDS) },
            1 => Step::DeregMr { mr: below(self, slots::MRS) },
            2 => Step::DeallocMw { mw: below(self, slots::MWS) },
            3 => Step::DestroyChannel { channel: below(self, slots::CHANNELS) },
            4 => Step::DestroyCq { cq: below(self, slots::CQS) },
            5..=7 => Step::DestroyQp { qp: below(self, slots::QPS) },
            _ => Step::DestroyAh { ah: below(self, slots::AHS) },
        };
        // What cannot be destroyed because it is in use stays in the model, what has no users may.
        match step {
            Step::DeregMr { mr } => self.model.mrs[usize::from(mr)] = None,
            Step::DestroyQp { qp } => self.model.qps[usize::from(qp)] = None,
            Step::DestroyAh { ah } => self.model.ahs[usize::from(ah)] = false,
            Step::DeallocMw { mw } => self.model.mws[usize::from(mw)] = None,
            _ => {}
        }
        self.add(step);
    }

    fn states(&mut self) {
        let Some(qp) = any_of(self.random, &self.model.qps, Option::is_some) else { return };
        let state = self.random.weighted(&[
            (6, IBV_QPS_ERR),
            (2, IBV_QPS_RESET),
            (2, IBV_QPS_SQD),
            (2, IBV_QPS_RTS),
            (1, IBV_QPS_INIT),
            (1, IBV_QPS_RTR),
            (1, IBV_QPS_SQE),
            (1, 77),
        ]);
        let mask = if self.random.once_in(4) { 1 << self.random.below(25) } else { 0 };
        let Some(peer) = any_of(self.random, &self.model.qps, Option::is_some) else { return };
        let change = Change {
            state,
            peer,
            mask,
            access: self.random.of(&[0, 1, 7, 15, 0x8000_0000]),
            patience: self.random.below(256) as u8,
            port: self.random.of(&[1, 1, 1, 0, 2]),
            gid_index: self.random.of(&[0, 0, 0, 1, 40]),
        };
        self.add(Step::ModifyQp { qp, change });
    }

    fn resize(&mut self) {
        let Some(cq) = any_of(self.random, &self.model.cqs, Option::is_some) else { return };
        let entries = self.random.of(&[
            1,
            2,
            3,
            8,
            64,
            100,
            127,
            500,
            2000,
            0,
            -1,
            524_286,
            524_287,
            1_048_575,
            i32::MAX,
        ]);
        self.add(Step::ResizeCq { cq, entries });
    }

    fn query(&mut self) {
        let qp = any_of(self.random, &self.model.qps, Option::is_some);
        match qp {
            Some(qp) if !self.random.once_in(4) => {
                let mask = self.random.of(&[1, 0, 0x1f_ffff, 0x10, 0xffff_ffff]);
                self.add(Step::QueryQp { qp, mask });
            }
            _ => {
                let port = self.random.of(&[1, 1, 0, 2, 255]);
                self.add(Step::QueryDevice { port });
            }
        }
    }

    fn reregister(&mut self) {
        let Some(mr) = any_of(self.random, &self.model.mrs, Option::is_some) else { return };
        let flags = self.random.of(&[1, 2, 3, 4, 5, 6, 7, 0, 8]);
        let pd = self.pd();
        let offset = self.random.below(8) * 4096;
        let length = u64::from(self.random.within(1, 6)) * 4096;
        let access = self.random.of(&[ALL, ALL, 1, 0, 2, 32]);
        self.add(Step::ReregMr { mr, flags, pd, offset, length, access });
    }

    fn multicast(&mut self) {
        let Some(qp) = any_of(self.random, &self.model.qps, Option::is_some) else { return };
        let group = self.random.below(3) as u8;
        if self.random.once_in(2) {
            self.add(Step::AttachMulticast { qp, group });
        } else {
            self.add(Step::DetachMulticast { qp, group });
        }
    }

    /// Lets a command fail that comes soon.
    fn fail(&mut self) {
        let command = self.random.of(&[
            Command::AllocPd,
            Command::RegMr,
            Command::CreateCq,
            Command::ResizeCq,
            Command::CreateSrq,
            Command::ModifySrq,
            Command::CreateQp,
            Command::ModifyQp,
            Command::CreateAh,
            Command::AllocMw,
        ]);
        let errno = self.random.of(&[libc::ENOMEM, libc::EIO, libc::EINVAL]);
        let nth = self.random.of(&[1, 1, 2]);
        if command == Command::CreateAh {
            self.add(Step::Fail { command, nth: 1, errno });
            let ah = self.free(|model| model.ahs.to_vec());
            self.create_ah(ah, true);
            return self.add(Step::FailNoMore);
        }
        self.add(Step::Fail { command, nth, errno });
        for _ in 0..3 {
            match command {
                Command::ResizeCq => self.resize(),
                Command::CreateSrq | Command::ModifySrq => self.shared(),
                Command::ModifyQp => self.states(),
                _ => self.more_objects(),
            }
        }
        self.add(Step::FailNoMore);
    }
}
