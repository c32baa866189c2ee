//! Commands about memory: registrations, windows, keys set aside for work requests.

use irdma_engine::Engine;
use irdma_engine::spec::{Access, Key, MemoryRegion, PageSize, PdId, Translation, WindowKind};

use super::{Command, Failure};
use crate::backing::Backing;
use crate::field::Field;
use crate::function::Function;
use crate::host::Host;

const DOMAIN: Field = Field::new(63, 46);
const DOMAIN_HIGH: Field = Field::new(59, 54);
const LENGTH: Field = Field::new(45, 0);
const KEY: Field = Field::new(31, 0);
const INDEX: Field = Field::new(31, 8);
const TYPE1: Field = Field::bit(42);
const IS_REGION: Field = Field::bit(43);
const TRANSLATION: Field = Field::new(45, 44);
const PAGE_SIZE: Field = Field::new(47, 46);
const RIGHTS: Field = Field::new(52, 48);
const ADDRESS_BASED: Field = Field::bit(59);
const REMOTE_ATOMIC: Field = Field::bit(61);

impl Function {
    fn key_domain(&self, engine: &mut Engine<Host>, command: &Command) -> PdId {
        let high = DOMAIN_HIGH.number(command.word(16)) << 18;
        self.domain(engine, high | DOMAIN.number(command.word(8)))
    }

    fn access(&self, command: &Command) -> Access {
        Access {
            remote_atomic: self.is_gen3() && command.has(REMOTE_ATOMIC),
            ..Access::from_rights(RIGHTS.get(command.header()))
        }
    }

    /// `ALLOC_STAG`: a key for registrations by work requests, or a window.
    pub(super) fn allocate_key(
        &mut self,
        engine: &mut Engine<Host>,
        command: &Command,
    ) -> Result<(), Failure> {
        let pd = self.key_domain(engine, command);
        let key = INDEX.number(command.word(16)) << 8;
        if !command.has(IS_REGION) {
            let kind = if command.has(TYPE1) { WindowKind::Type1 } else { WindowKind::Type2 };
            engine.create_mw(pd, kind, Some(key))?;
            return Ok(());
        }
        let length = LENGTH.get(command.word(8));
        let backing = Backing::physical(self.id, 0, 0);
        let region = MemoryRegion { pd, address: 0, length, access: self.access(command), backing };
        engine.reserve_mr(region, Some(key))?;
        Ok(())
    }

    /// `REG_MR`. A length of 0 means all of the guest's memory, under its physical addresses.
    pub(super) fn register_memory(
        &mut self,
        engine: &mut Engine<Host>,
        command: &Command,
    ) -> Result<(), Failure> {
        let pd = self.key_domain(engine, command);
        let key: Key = KEY.number(command.word(16));
        let (address, length) = (command.word(0), LENGTH.get(command.word(8)));
        let mut access = self.access(command);
        if length == 0 {
            let backing = Backing::everything(self.id);
            let region = MemoryRegion { pd, address: 0, length: u64::MAX, access, backing };
            engine.create_mr(region, Some(key))?;
            return Ok(());
        }
        access.zero_based = !command.has(ADDRESS_BASED);
        let page_size = PageSize::from_code(PAGE_SIZE.get(command.header())).ok_or(Failure::INVALID)?;
        let first_entry = command.first_entry();
        let pages = match TRANSLATION.get(command.header()) {
            0 => Translation::Contiguous(command.word(32)),
            1 => Translation::OneLevel(first_entry),
            3 => Translation::TwoLevels(first_entry),
            _ => return Err(Failure::INVALID),
        };
        let offset = address & (page_size.bytes() - 1);
        let backing = Backing::new(self.id, pages, page_size, offset, length);
        engine.create_mr(MemoryRegion { pd, address, length, access, backing }, Some(key))?;
        Ok(())
    }

    /// `DEALLOC_STAG`: a region or a window.
    pub(super) fn free_key(&mut self, engine: &mut Engine<Host>, command: &Command) -> Result<(), Failure> {
        Ok(engine.free_key(self.id, INDEX.number(command.word(16)))?)
    }
}
