//! Registration by a work request: what kernel queue pairs do with regions kept for it.

use crate::engine::Engine;
use crate::event::code;
use crate::format::{Field, word};
use crate::mr::{Protected, protected_id};
use crate::platform::Platform;
use crate::spec::{Access, EngineError, Generation, Key, MemoryRegion, PageSize, QpId, Translation};

// Fields of the work request (kernel: `IRDMAQPSQ_*`, drivers/infiniband/hw/irdma/defs.h;
// `irdma_sc_mr_fast_register`).
const Q1_PHYSICAL: Field = Field::new(63, 12);
const Q1_FIRST_ENTRY_HIGH: Field = Field::new(11, 0);
const Q2_FIRST_ENTRY_LOW: Field = Field::new(63, 48);
const Q2_LENGTH: Field = Field::new(40, 0);
const Q3_KEY: Field = Field::new(31, 0);
const Q3_TRANSLATION: Field = Field::new(45, 44);
const Q3_PAGE_SIZE: Field = Field::new(47, 46);
const Q3_RIGHTS: Field = Field::new(52, 48);
const Q3_ADDRESS_BASED: Field = Field::new(53, 53);
const Q3_REMOTE_ATOMIC: Field = Field::new(55, 55);

/// A registration posted as work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FastRegister {
    key: Key,
    /// Address of the first byte, or its offset in the first page.
    address: u64,
    length: u64,
    access: Access,
    pages: Translation,
    page_size: PageSize,
}

impl FastRegister {
    /// Out of a work request's quantum; else the event code.
    pub(crate) fn decode(bytes: &[u8], generation: Generation) -> Result<Self, u16> {
        let (second, third, header) = (word(bytes, 1), word(bytes, 2), word(bytes, 3));
        let first_entry = (Q1_FIRST_ENTRY_HIGH.get(second) << 16 | Q2_FIRST_ENTRY_LOW.get(third)) as u32;
        let pages = match Q3_TRANSLATION.get(header) {
            0 => Translation::Contiguous(Q1_PHYSICAL.get(second) << 12),
            1 => Translation::OneLevel(first_entry),
            3 => Translation::TwoLevels(first_entry),
            _ => return Err(code::FAST_REGISTER_INVALID_PAGES),
        };
        let page_size =
            PageSize::from_code(Q3_PAGE_SIZE.get(header)).ok_or(code::FAST_REGISTER_INVALID_PAGES)?;
        let mut access = Access::from_rights(Q3_RIGHTS.get(header));
        access.remote_atomic = generation >= Generation::Gen3 && Q3_REMOTE_ATOMIC.is_set(header);
        access.zero_based = !Q3_ADDRESS_BASED.is_set(header);
        Ok(Self {
            key: Q3_KEY.get(header) as Key,
            address: word(bytes, 0),
            length: Q2_LENGTH.get(third),
            access,
            pages,
            page_size,
        })
    }
}

impl<P: Platform> Engine<P> {
    /// Carries out a registration posted on `qp`; else the event code.
    pub(crate) fn fast_register(&mut self, qp: QpId, request: &FastRegister) -> Result<(), u16> {
        if !self.is_privileged(qp) {
            return Err(code::PRIVILEGED_OPERATION);
        }
        let Some(pd) = self.qps.get(qp).map(|qp| qp.pd) else { return Err(code::BAD_QP) };
        let id = protected_id(qp.function, request.key);
        let region = match self.protected.get(id).ok_or(code::BAD_STAG_INDEX)? {
            Protected::Region(region) => region,
            Protected::Window(_) => return Err(code::FAST_REGISTER_OF_WINDOW),
        };
        if region.memory.pd != pd {
            return Err(code::BAD_PD);
        }
        if region.valid {
            return Err(code::FAST_REGISTER_VALID_STAG);
        }
        if request.length == 0 || request.length > region.room {
            return Err(code::FAST_REGISTER_INVALID_LENGTH);
        }
        let offset = request.address & (request.page_size.bytes() - 1);
        let backing = self
            .platform
            .fast_memory(qp.function, request.pages, request.page_size, offset, request.length)
            .ok_or(code::FAST_REGISTER_INVALID_PAGES)?;
        let memory = MemoryRegion {
            pd,
            address: request.address,
            length: request.length,
            access: request.access,
            backing,
        };
        match self.check_memory(&memory) {
            Ok(()) => {}
            Err(EngineError::Invalid) => return Err(code::ADDRESS_WRAP),
            Err(_) => return Err(code::BAD_PD),
        }
        if let Some(Protected::Region(region)) = self.protected.get_mut(id) {
            region.memory = memory;
            region.key = request.key;
            region.valid = true;
        }
        Ok(())
    }
}
